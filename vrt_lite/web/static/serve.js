// What the server's pages do: send clips and questions, and show a job's events as they come.
// It uses the report's `one`, `all`, `make`, `parse`, `fillPictures` and `startPlayers`. Everything that a clip, a prompt
// or a judge says becomes a text node or an attribute; the only markup that is parsed is the verdict that the server
// rendered, in which every text is escaped.
"use strict";
const page = one("main");

/** Ask the API. Throws an error with a line for the user. */
async function ask(path, method = "GET", body) {
  const options = { method };
  if (body instanceof File || body instanceof FormData) options.body = body;
  else if (body !== undefined) Object.assign(options, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  let answer;
  try { answer = await fetch(path, options); } catch { throw new Error("The server cannot be reached: start it again (vrt-lite serve)."); }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error?.message ?? `The server answered ${answer.status}.`);
  return told;
}
function seconds(value) {
  const whole = Math.max(Math.round(value), 0);
  return whole < 90 ? `${whole} s` : whole < 5400 ? `${Math.round(whole / 60)} min` : `${(whole / 3600).toFixed(1)} h`;
}
const complain = (place, error) => { place.textContent = error.message; place.classList.add("error"); };

// Forms

/** The files that were dropped; a folder stands for the clips and pictures in it. */
async function listDropped(transfer, accepted) {
  const wanted = (file) => accepted.some((end) => file.name.toLowerCase().endsWith(end)) && !file.name.startsWith(".");
  const wait = (owner, method) => new Promise((done, fail) => owner[method](done, fail));
  const dropped = [...transfer.items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile()).filter(Boolean);  // before any wait
  const files = [];
  for (const entry of dropped) {
    if (!entry.isDirectory) { files.push(entry.isFile ? await wait(entry, "file") : entry); continue; }
    const reader = entry.createReader(), inner = [];
    for (let part = await wait(reader, "readEntries"); part.length; part = await wait(reader, "readEntries")) inner.push(...part);
    for (const file of inner.filter((file) => file.isFile && wanted(file))) files.push(await wait(file, "file"));
  }
  return files;
}

/** Clips that were dropped, chosen or picked. Returns a list of { name, file }, { name, pictures } or { name, path }.
 *
 *  `changed` is called when it changes. A clip too many goes to `pass`. */
function startDrop(box, changed, pass) {
  const many = "many" in box.dataset, list = one(".chosen", box), taken = [];
  function show() {
    changed();
    list.replaceChildren(...taken.map((entry, number) => {
      const line = make("li"), remove = make("button", { type: "button", "aria-label": `Leave out ${entry.name}` }, "Leave out");
      remove.addEventListener("click", () => { taken.splice(number, 1); show(); one("input", box).focus(); });
      line.append(make("bdi", {}, entry.name), remove);
      return line;
    }));
  }
  function take(entries) {
    if (!entries.length) return;
    if (many) taken.push(...entries);
    else taken.splice(0, taken.length, entries[0]);
    if (!many && entries.length > 1) pass(entries[1]);
    show();
  }
  const isPicture = (file) => ["image/png", "image/jpeg"].includes(file.type);
  /** Take files: several pictures at once are one clip. */
  function files(found) {
    const pictures = [...found].filter(isPicture), clips = pictures.length > 1 ? [...found].filter((file) => !isPicture(file)) : [...found];
    const entries = clips.map((file) => ({ name: file.name, file }));
    if (pictures.length > 1) entries.push({ name: `${pictures.length} numbered pictures`, pictures });
    take(entries);
  }
  const input = one("input", box);
  input.addEventListener("change", () => { files(input.files); input.value = ""; });
  for (const kind of ["dragenter", "dragover"]) box.addEventListener(kind, (event) => { event.preventDefault(); box.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) box.addEventListener(kind, () => box.classList.remove("over"));
  box.addEventListener("drop", async (event) => { event.preventDefault(); files(await listDropped(event.dataTransfer, input.accept.split(","))); });
  one("[data-browse]", box)?.addEventListener("click", () => browse(take, many));
  return { taken, take };
}

/** Choose a clip, or a whole folder, of those that the server may use. */
function browse(take, many) {
  const dialog = one("#browser"), entries = one("[data-entries]", dialog), whole = one("[data-take]", dialog);
  async function open(path) {
    let found;
    try { found = await ask(`/v1/folders?path=${encodeURIComponent(path)}`); }
    catch (error) { complain(one("[data-path]", dialog), error); return; }
    one("[data-path]", dialog).textContent = found.path || "Allowed folders";
    const line = (words, act) => { const item = make("li"), button = make("button", { type: "button" }, words); button.addEventListener("click", act); item.append(button); return item; };
    const up = path ? [line("↑ All allowed folders", () => open(""))] : [];
    const clip = (entry) => entry.name + (isPattern(entry.path) ? " (numbered pictures)" : "");
    entries.replaceChildren(...up, ...found.folders.map((entry) => line(`${entry.name}/`, () => open(entry.path))), ...found.clips.map((entry) => line(clip(entry), () => { take([entry]); if (!many) dialog.close(); })));
    whole.hidden = !many || !found.clips.length;
    whole.onclick = () => { take(found.clips); dialog.close(); };
    one("button", entries)?.focus();
  }
  one("[data-close]", dialog).onclick = () => dialog.close();
  dialog.showModal();
  open("");
}

const isPattern = (path) => /%\d*d/.test(path);

function startForm(form) {
  const status = one("[data-status]", form), submit = one("[type=submit]", form), kind = form.dataset.form;
  const rate = one("[data-rate]", form), drops = {};
  const changed = () => { rate.hidden = !Object.values(drops).some((drop) => drop.taken.some((entry) => entry.pictures || isPattern(entry.path ?? ""))); };
  for (const box of all("[data-drop]", form)) {
    const name = box.dataset.drop;
    drops[name] = startDrop(box, changed, (entry) => drops[name === "a" ? "b" : "a"].take([entry]));
  }
  async function send(entry) {
    const fps = one("input", rate).value;
    if (entry.path) return fps && isPattern(entry.path) ? `${entry.path}@${fps}` : entry.path;
    status.textContent = `Taking ${entry.name}`;
    if (!entry.pictures) return (entry.clip ??= (await ask(`/v1/clips?name=${encodeURIComponent(entry.name)}`, "POST", entry.file)).clip);
    const body = new FormData();
    body.append("fps", fps);
    for (const picture of entry.pictures) body.append("clip", picture, picture.name);
    return (await ask("/v1/clips", "POST", body)).clip;
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    status.classList.remove("error");
    const few = Object.entries(drops).find(([name, { taken }]) => taken.length < (name === "clips" ? 2 : 1));
    if (few) { complain(status, new Error(few[0] === "clips" ? "Choose two clips or more." : "Choose two clips.")); one(`#${few[0]}-file`).focus(); return; }
    submit.disabled = true;
    try {
      const body = { prompt: form.elements.prompt.value, both_orders: form.elements.both_orders.checked, wait: false };
      if (form.elements.model.value) body.model = form.elements.model.value;
      if (form.elements.exclude_flagged) body.exclude_flagged = form.elements.exclude_flagged.checked;
      if (form.elements.budget?.value) body.budget = Number(form.elements.budget.value);
      for (const [name, { taken }] of Object.entries(drops)) {
        const clips = [];
        for (const entry of taken) clips.push(await send(entry));
        body[name] = name === "clips" ? clips : clips[0];
      }
      const job = await ask(`/v1/${kind}`, "POST", body);
      location.assign(`/jobs/${job.id}`);
    } catch (error) { complain(status, error); submit.disabled = false; }
  });
}

// Jobs

/** Follow a job. `on` has a function for each kind of event; after a lost connection it goes on where it was. */
function follow(id, on) {
  const events = new EventSource(`/v1/jobs/${id}/events`);
  for (const [kind, act] of Object.entries(on)) {
    events.addEventListener(kind, (event) => { if (kind === "end") events.close(); act(JSON.parse(event.data)); });
  }
  return events;
}
const WORDS = { queued: "Waiting for the engine", running: "Beginning", paused: "Paused", done: "Done", failed: "It failed", cancelled: "Cancelled" };

/** What all pages of jobs have: state, progress, time left and buttons. */
function startControls(id) {
  const stage = one("[data-stage]"), left = one("[data-left]"), bar = one("[data-bar]");
  let until = null;
  if (left) setInterval(() => { left.textContent = until === null ? "" : until > Date.now() ? `about ${seconds((until - Date.now()) / 1000)} left` : "nearly done"; }, 500);
  for (const [name, path, method] of [["cancel", "", "DELETE"], ["pause", "/pause", "POST"], ["resume", "/resume", "POST"]]) {
    one(`[data-${name}]`)?.addEventListener("click", () => ask(`/v1/jobs/${id}${path}`, method).catch((error) => complain(stage, error)));
  }
  return {
    state({ state }) {
      stage.textContent = WORDS[state];
      if (state !== "running") { until = null; if (left) left.textContent = ""; }
      const ended = ["done", "failed", "cancelled"].includes(state);
      const show = (name, there) => { const button = one(`[data-${name}]`); if (button) button.hidden = !there; };
      show("cancel", !ended);
      show("pause", state === "running" || state === "queued");
      show("resume", state === "paused");
      bar.hidden = state !== "running";
      bar.removeAttribute("value");
    },
    step(words, done, total) {
      if (stage.textContent !== words) stage.textContent = words;
      if (total) bar.value = done / total;
      else bar.removeAttribute("value");
    },
    until(value) { until = value === null || value === undefined ? null : Date.now() + 1000 * value; },
    fail(told) {
      if (told.error) complain(stage, told.error);
      one("[data-title]").textContent = told.state === "cancelled" ? "Cancelled" : "No result";
    },
  };
}

const TITLES = { snapshot: "Saw", think: "Thinks", "recommend answer": "Leans to", "recommended answer": "Leans to", answer: "Answers", "final answer": "Answers", "tool call": "Asks for" };
/** What the judge has written so far, by its tags: [title, text]; a tag that is not finished is left out. */
function listParts(written) {
  const parts = [["", ""]], tag = /<\s{0,4}(\/?)\s{0,4}([a-z]{1,12}(?:[ _][a-z]{1,8})?)\s{0,4}>/gi;
  let from = 0;
  for (const found of written.matchAll(tag)) {
    const title = TITLES[found[2].toLowerCase().replace("_", " ")];
    if (!title) continue;
    parts.at(-1)[1] += written.slice(from, found.index);
    parts.push([found[1] ? "" : title, ""]);
    from = found.index + found[0].length;
  }
  parts.at(-1)[1] += written.slice(from).replace(/<[^<>]{0,32}$/, "");
  return parts.map(([title, words]) => [title, words.trim()]).filter(([title, words]) => title || words);
}

function startComparison(id) {
  const controls = startControls(id), words = one("[data-words]"), lengths = [1, 1];
  let round = null, text = null, written = "";
  const SVG = "http://www.w3.org/2000/svg";
  function mark(frame) {
    const line = document.createElementNS(SVG, "line"), x = `${Math.min((100 * frame.seconds) / lengths[frame.video - 1], 100)}%`;
    for (const [name, value] of Object.entries({ class: frame.called ? "mark called" : "mark", x1: x, x2: x, y1: "3", y2: "17" })) line.setAttribute(name, value);
    one(`[data-line][data-video="${frame.video}"]`).append(line);
    const item = make("li", { class: frame.called ? "called" : "" }), figure = make("figure");
    const label = `Video ${frame.video} at ${frame.seconds.toFixed(2)} s${frame.called ? ", asked for" : ""}`;
    figure.append(make("img", { src: `/jobs/${id}/frames/${frame.video}/${frame.source}`, alt: label }), make("figcaption", {}, `${frame.seconds.toFixed(2)} s`));
    item.append(figure);
    one(`[data-strip="${frame.video}"]`).append(item);
  }
  follow(id, {
    state: controls.state,
    progress: (told) => controls.until(told.seconds_left),
    left: (told) => controls.until(told.seconds_left),
    stage: (told) => controls.step(told.words, told.done, told.total),
    pair(told) {
      lengths.splice(0, 2, ...told.clips.map((of) => of.seconds || 1));
      for (const old of all("[data-line] .mark, [data-strip] li")) old.remove();
      words.replaceChildren();
      if (told.exchanged) words.append(make("p", { class: "quiet" }, "The other way round: what the judge now calls Video 1 is video 2."));
    },
    round(told) {
      for (const frame of told.frames) mark(frame);
      round = make("section", { class: "round" });
      text = make("div", { class: "words" });
      written = "";
      round.append(make("h3", {}, `Round ${told.number}`), text);
      words.append(round);
      controls.step(`Round ${told.number}`, 0, 0);
    },
    wrote(told) {
      written += told.text;
      text?.replaceChildren(...listParts(written).map(([title, words]) => {
        const part = make("div");
        part.append(...(title ? [make("h4", {}, title)] : []), make("p", { class: "text", dir: "auto" }, words));
        return part;
      }));
    },
    outcome(told) { round?.append(make("p", { class: "quiet" }, told.words)); },
    async end(told) {
      if (told.state !== "done") { controls.fail(told); return; }
      const answer = await fetch(`/jobs/${id}/verdict`);
      if (!answer.ok) { controls.fail({ error: new Error("The verdict cannot be shown.") }); return; }
      page.replaceChildren(parse(await answer.text()));
      const more = make("p", { class: "actions" }), link = make("a", { href: `/run?run=${encodeURIComponent(told.result.run)}` }, "All comparisons of this day");
      if (!told.request.both_orders) {
        const button = make("button", { type: "button" }, "Judge the other order too"), status = make("span", { role: "status", class: "quiet" });
        button.addEventListener("click", async () => {
          button.disabled = true;
          try { location.assign(`/jobs/${(await ask("/v1/compare", "POST", { ...told.request, both_orders: true })).id}`); }
          catch (error) { complain(status, error); button.disabled = false; }
        });
        more.append(button, status);
      }
      more.append(make("a", { href: "/" }, "Compare two others"), link);
      one("article", page).append(more);
      fillPictures(page);
      startPlayers(page);
      const heading = one("h1", page);
      document.title = `${heading.textContent} · vrt-lite`;
      heading.focus({ preventScroll: true });
    },
  });
}

/** What to know of a ranking, in the server's words; nothing if there is nothing. */
function warningList(lines) {
  if (!lines.length) return [];
  const box = make("section", { class: "warnings", "aria-label": "Warnings" }), list = make("ul");
  for (const line of lines) { const item = make("li"); item.append(make("bdi", { dir: "auto" }, line)); list.append(item); }
  box.append(list);
  return [box];
}

function ladderTable(group, scale) {
  const SVG = "http://www.w3.org/2000/svg", x = (value) => `${(100 * (value - scale[0])) / (scale[1] - scale[0] || 1)}%`;
  const table = make("table", { class: "ladder live" }), head = make("tr"), body = make("tbody");
  table.append(make("caption", { class: "unseen" }, group.group ? `The leaderboard of ${group.group}` : "The leaderboard"));
  for (const name of ["Place", "Clip", "Strength"]) head.append(make("th", { scope: "col" }, name));
  for (const name of ["Log odds", "Won, tied, lost, undecided", "Same as"]) head.append(make("th", { scope: "col", class: "number" }, name));
  for (const row of group.rows) {
    const line = make("tr"), scaleCell = make("td", { class: "scale" }), svg = document.createElementNS(SVG, "svg"), name = make("th", { scope: "row", class: "clip" });
    svg.setAttribute("class", "interval");
    svg.setAttribute("aria-hidden", "true");
    const draw = (kind, attributes) => { const part = document.createElementNS(SVG, kind); for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value); svg.append(part); };
    if (row.low !== null) draw("line", { class: "span", x1: x(row.low), x2: x(row.high), y1: "50%", y2: "50%" });
    draw("circle", { class: "dot", cx: x(row.strength), cy: "50%", r: "5" });
    scaleCell.append(svg);
    name.append(make("bdi", {}, row.name), ...(row.flags ? [" ", make("span", { class: "tag" }, row.flags)] : []));
    const number = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
    line.append(make("td", { class: "rank" }, String(row.rank)), name, scaleCell, make("td", { class: "number", "data-name": "Log odds" }, number(row.strength) + (row.low === null ? "" : ` (${number(row.low)} to ${number(row.high)})`)), make("td", { class: "number", "data-name": "Won, tied, lost, undecided" }, `${row.won} · ${row.tied} · ${row.lost} · ${row.undecided}`), make("td", { class: "number", "data-name": "Same as" }, row.letters));
    body.append(line);
  }
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  return table;
}

function startRanking(id) {
  const controls = startControls(id), place = one("[data-ladder]"), last = one("[data-last]");
  follow(id, {
    state: controls.state,
    progress(told) {
      controls.step(`${told.done} of at most ${told.most} judgements`, told.done, told.most);
      controls.until(told.seconds_left);
    },
    pair(told) {
      const [a, b] = told.clips;
      last.replaceChildren("Last judged: ", make("bdi", {}, a.name), " and ", make("bdi", {}, b.name), ". ", make("bdi", {}, told.words));
    },
    ladder(told) {
      const rows = told.groups.flatMap((group) => group.rows);
      if (!rows.length) return;
      const scale = [Math.min(...rows.map((row) => row.low ?? row.strength)), Math.max(...rows.map((row) => row.high ?? row.strength))];
      const line = (words) => (words ? [make("p", { class: "quiet", dir: "auto" }, words)] : []);
      place.replaceChildren(...line(`Judged by ${told.judge}.`), ...told.groups.flatMap((group) => [...warningList(group.warnings), ...line(group.conclusion), ladderTable(group, scale)]));
    },
    end(told) {
      if (told.state !== "done") { controls.fail(told); return; }
      one("[data-title]").textContent = "Ranked";
      const name = told.result.run;
      one("[data-after]").hidden = false;
      one("[data-run]").href = `/run?run=${encodeURIComponent(name)}`;
      const copy = one("[data-copy]"), status = one("[data-copied]");
      copy?.addEventListener("submit", async (event) => {
        event.preventDefault();
        status.classList.remove("error");
        try {
          const done = await ask("/v1/run/copy", "POST", { run: name, top: Number(one("#top").value), folder: one("#folder").value });
          status.textContent = [`${done.copies.length} copied`, ...done.flagged].join(". ");
        } catch (error) { complain(status, error); }
      });
    },
  });
}

function startPulls() {
  const box = one("[data-pulling]");
  function show(id) {
    box.hidden = false;
    const controls = startControls(id);
    follow(id, {
      state: controls.state,
      log: (told) => controls.step(told.line, 0, 0),
      progress: (told) => controls.step(told.words, told.done, told.most),
      end(told) { if (told.state === "done") location.reload(); else if (told.error) complain(one("[data-stage]"), told.error); },
    });
  }
  if (page.dataset.job) show(page.dataset.job);
  for (const button of all("[data-pull]")) {
    button.addEventListener("click", async () => {
      try { const job = await ask("/v1/models/pull", "POST", { model: button.dataset.pull }); show(job.id); }
      catch (error) { box.hidden = false; complain(one("[data-stage]"), error); }
    });
  }
}

// Votes

function startBallot(query) {
  const place = one("[data-pair]"), ballot = one(".ballot"), status = one("[data-status]");
  let ticket = null;
  async function next() {
    const told = await ask(`/v1/votes/next?${query}`);
    one("[data-count]").textContent = `${told.votes} of ${told.pairs} pairs voted on`;
    ticket = told.ticket;
    ballot.hidden = !ticket;
    one("[data-prompt]").textContent = told.prompt ?? "";
    place.replaceChildren();
    if (!ticket) { status.textContent = told.votes >= told.pairs ? "All pairs are voted on." : "The clips of the other pairs cannot be played from here."; return; }
    const players = make("div", { class: "players", role: "group", "aria-label": "Both clips, played in step", "data-players": "" }), screens = make("div", { class: "screens" });
    for (const [number, side, source] of [[1, "Left", told.left], [2, "Right", told.right]]) {
      const figure = make("figure"), caption = make("figcaption");
      const video = make("video", { src: source, muted: "", playsinline: "", preload: "auto", "aria-label": side, "data-seconds": "1", "data-fps": "24", "data-video": String(number) });
      caption.append(make("span", { class: "file" }, side));
      figure.append(video, caption);
      screens.append(figure);
    }
    players.append(screens);
    place.append(players);
    startPlayers(place);
  }
  async function agree() {
    const told = await ask(`/v1/votes/agreement?${query}`), percent = (share) => `${(100 * share).toFixed(0)} %`;
    if (!told.judges.length) return;
    const table = make("table"), head = make("tr"), body = make("tbody"), top = make("thead");
    table.append(make("caption", { class: "unseen" }, "How far each judge agrees with your votes"));
    for (const name of ["Judge", "Agrees", "Share", "95 % interval"]) head.append(make("th", { scope: "col" }, name));
    for (const judge of told.judges) {
      const line = make("tr"), name = make("th", { scope: "row" });
      name.append(make("bdi", {}, judge.judge));
      line.append(name, make("td", {}, `${judge.agrees} of ${judge.of}`), make("td", {}, percent(judge.share)), make("td", {}, `${percent(judge.low)} to ${percent(judge.high)}`));
      body.append(line);
    }
    top.append(head);
    table.append(top, body);
    one("[data-agreement]").replaceChildren(table);
  }
  async function vote(choice) {
    if (!ticket) return;
    const given = ticket;
    ticket = null;
    try {
      await ask("/v1/votes", "POST", { ticket: given, choice });
      status.classList.remove("error");
      status.textContent = ["Kept: no difference.", "Kept: left.", "Kept: right."][choice];
      await next();
      await agree();
    } catch (error) {
      complain(status, error);
      next().catch(() => {});  // the same pair again, if the vote was not kept
    }
  }
  for (const button of all("[data-choice]")) button.addEventListener("click", () => vote(Number(button.dataset.choice)));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || event.target.closest("input, select, textarea")) return;
    if (["0", "1", "2"].includes(event.key)) { event.preventDefault(); vote(Number(event.key)); }
  });
  next().then(agree).catch((error) => complain(status, error));
}

for (const form of all("[data-form]")) startForm(form);
if (page.dataset.page === "job") (page.dataset.kind === "compare" ? startComparison : startRanking)(page.dataset.job);
if (page.dataset.page === "judges") startPulls();
if (page.dataset.page === "vote") startBallot(page.dataset.query);
