// What a report does beyond being read: plays both clips in step, finds pairs and opens their pages.
// Names and prompts become text nodes. Pages are markup in which the writer escaped every text; the policy of this file
// lets no script or handler in them run.
"use strict";
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** An element of our own; its content is text. */
function make(tag, attributes = {}, ...texts) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...texts);
  return element;
}

/** A file's name in its two parts, as the macro `file` makes it. */
function fileName([start, end]) {
  const name = make("bdi", { class: "file", title: start + end });
  if (end) name.append(make("span", {}, start), make("span", {}, end));
  else name.append(start);
  return name;
}

/** Markup that the writer of this page made, every text in it escaped. Nothing in a template loads or runs. */
function parse(html) {
  const template = make("template");
  template.innerHTML = html;
  return template.content;
}

/** Pictures are in the page once; wherever one is shown again it is fetched from its first place. */
function pictureAt(id) {
  const first = document.getElementById(id);
  return first?.tagName === "IMG" ? first.src : first?.textContent;
}
function fillPictures(root) {
  for (const image of all("img[data-frame]", root)) image.src = pictureAt(image.dataset.frame) ?? image.src;
}

/** Data that lies compressed in the page. */
async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

/** Both clips of a pair under one set of controls. The longer one is the clock; the other is held to it. */
function startPlayers(root) {
  const box = one("[data-players]", root);
  if (!box) return;
  let videos = all("video", box);
  let lead, playing = false, rate = 1, shown = 0;
  const seconds = (video) => (Number.isFinite(video.duration) ? video.duration : Number(video.dataset.seconds));
  const length = () => seconds(lead);
  const fps = Math.max(...videos.map((video) => Number(video.dataset.fps) || 1));
  const controls = make("div", { class: "controls" });
  const play = make("button", { type: "button", class: "play" }, "Play");
  const back = make("button", { type: "button", "aria-label": "Back one frame" }, "−1 frame");
  const next = make("button", { type: "button", "aria-label": "On one frame" }, "+1 frame");
  const bar = make("input", { type: "range", min: "0", step: String(1 / fps), value: "0", "aria-label": "Moment in both clips" });
  const clock = make("output", { "aria-live": "off" });
  const speed = make("select", {});
  for (const value of [0.1, 0.25, 0.5, 1, 2]) speed.append(make("option", { value: String(value) }, `${value}×`));
  speed.value = "1";
  const loop = make("input", { type: "checkbox" });
  loop.checked = true;
  const labelled = (words, input) => { const label = make("label"); label.append(words, input); return label; };
  controls.append(play, back, next, bar, clock, labelled("Speed", speed), labelled("Loop", loop));

  const choose = () => { if (!videos.length) return; lead = videos.reduce((a, b) => (seconds(b) > seconds(a) ? b : a)); bar.max = String(length()); show(); };
  function show() {
    shown = lead.currentTime;
    bar.value = String(shown);
    bar.setAttribute("aria-valuetext", `${shown.toFixed(2)} of ${length().toFixed(2)} seconds`);
    clock.value = `${shown.toFixed(2)} / ${length().toFixed(2)} s`;
    root.classList.toggle("moving", shown > 0 || playing);
    for (const video of videos) {
      const x = `${(100 * Math.min(shown / seconds(video), 1)).toFixed(2)}%`;
      for (const line of all(`.moments[data-video="${video.dataset.video}"] .head`, root)) {
        line.setAttribute("x1", x);
        line.setAttribute("x2", x);
      }
    }
  }
  // A millisecond into the frame: a time on the edge of two may show either.
  const seek = (moment) => { for (const video of videos) video.currentTime = clamp(moment + 0.001, 0, seconds(video)); show(); };
  function stop() {
    playing = false;
    play.textContent = "Play";
    for (const video of videos) video.pause();
    show();
  }
  async function start() {
    if (lead.currentTime >= length() - 0.5 / fps) seek(0);
    playing = true;
    play.textContent = "Pause";
    try {
      await Promise.all(videos.filter((v) => lead.currentTime < seconds(v)).map((v) => { v.playbackRate = rate; return v.play(); }));
      requestAnimationFrame(follow);
    } catch { stop(); }
  }
  function follow() {
    if (!playing || !box.isConnected) return;
    for (const video of videos) {
      if (video === lead) continue;
      const drift = video.currentTime - lead.currentTime;
      if (lead.currentTime >= seconds(video)) { if (!video.paused) video.pause(); }
      else if (Math.abs(drift) > 0.25) video.currentTime = lead.currentTime;
      else video.playbackRate = Math.abs(drift) < 0.5 / fps ? rate : rate * (1 - clamp(2 * drift, -0.2, 0.2));
    }
    show();
    requestAnimationFrame(follow);
  }
  function lose(video) {
    const words = " cannot be played: it is not where it was when this page was made, or this browser does not know its format.";
    const name = one(".file", video.parentElement).cloneNode(true);
    const line = make("p", { class: "absent", role: "status" });
    line.append(name, words);
    video.replaceWith(line);
    videos = videos.filter((other) => other !== video);
    if (videos.length) choose();
    else { controls.remove(); one(".keys", box)?.remove(); }
  }
  const step = (frames) => { stop(); seek(clamp((Math.floor(lead.currentTime * fps + 0.01) + frames) / fps, 0, length() - 1 / fps)); };
  const toggle = () => (playing ? stop() : start());

  for (const video of videos) {
    video.controls = false;
    if (video.dataset.copy) video.src = pictureAt(video.dataset.copy.slice(1));
    if (video.dataset.poster) video.poster = pictureAt(video.dataset.poster) ?? "";
    video.muted = true;
    video.addEventListener("error", () => lose(video));
    video.addEventListener("loadedmetadata", choose);
    video.addEventListener("seeked", show);
    video.addEventListener("click", toggle);
    video.addEventListener("ended", () => {
      if (video !== lead || !playing) return;
      if (loop.checked) { seek(0); start(); } else stop();
    });
  }
  play.addEventListener("click", toggle);
  back.addEventListener("click", () => step(-1));
  next.addEventListener("click", () => step(1));
  bar.addEventListener("input", () => { const moment = Number(bar.value); stop(); seek(moment); });
  speed.addEventListener("change", () => { rate = Number(speed.value); for (const video of videos) video.playbackRate = rate; });
  box.tabIndex = 0;
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !videos.length) return;
    const native = event.target.closest("button, select, input");
    const act = { ",": () => step(-1), ".": () => step(1), k: toggle, l: () => { loop.checked = !loop.checked; } };
    const own = { " ": toggle, ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => seek(0), End: () => step(1e9) };
    const done = act[event.key] ?? (native ? undefined : own[event.key]);
    if (done) { event.preventDefault(); done(); }
  });
  const keys = make("p", { class: "keys quiet" });
  keys.append(make("kbd", {}, "k"), " play, ", make("kbd", {}, ","), " ", make("kbd", {}, "."), " a frame back and on, ", make("kbd", {}, "l"), " loop, while the focus is here");
  box.append(controls, keys);
  for (const moment of all("[data-seek]", root)) {
    const button = make("button", { type: "button", class: "moment", "aria-label": `Show both clips at ${moment.textContent}` }, moment.textContent);
    button.addEventListener("click", () => { if (!videos.length) return; stop(); seek(Number(moment.dataset.seek)); box.scrollIntoView({ block: "nearest" }); });
    moment.replaceWith(button);
  }
  choose();
  for (const video of [...videos]) if (video.error) lose(video);
}

/** One of several panels, chosen by radio buttons; without a script all are there, one below the other. */
function startSwitch(root) {
  for (const choices of all("[data-switch]", root)) {
    const panels = all(`[data-panel="${choices.dataset.switch}"]`);
    const choose = () => { for (const panel of panels) panel.hidden = panel.dataset.key !== one("input:checked", choices).value; };
    choices.hidden = false;
    choices.addEventListener("change", choose);
    choose();
  }
}

/** The list of pairs: searched, filtered, a page at a time. A row: [both names, each in two parts, prompt, winner, words and a name, share, marks]. */
function startFinder(box, rows) {
  const PAGE = 50;
  let found = rows.map((_, number) => number), page = 0;
  const prompts = box.dataset.finder === "prompts";
  const body = one("tbody", box), status = one("[data-status]", box);
  const search = one("input", box), kind = one("select", box), [before, after] = all(".pager button", box);
  function show() {
    const from = page * PAGE, shown = found.slice(from, from + PAGE);
    body.replaceChildren(...shown.map((number) => {
      const [a, b, prompt, winner, better, share, marks] = rows[number];
      const link = make("a", { href: `#/pair/${number + 1}` });
      link.append(fileName(a), " and ", fileName(b));
      const row = make("tr"), head = make("th", { scope: "row" }), asked = make("td", { class: "quiet" }), result = make("td");
      head.append(link);
      asked.append(make("bdi", {}, prompt));
      const words = better.map((part) => (Array.isArray(part) ? fileName(part) : part));
      result.append(make("bdi", { class: `choice ${["tie", "one", "two"][winner] ?? winner ?? "tie"}` }, ...words), share ? ` ${share}` : "");
      for (const mark of marks) result.append(make("span", { class: mark === "as labelled" ? "tag plain" : "tag" }, mark));
      row.append(head, ...(prompts ? [asked] : []), result);
      return row;
    }));
    status.textContent = found.length ? `${from + 1} to ${from + shown.length} of ${found.length} pairs` : "No pair like that";
    before.disabled = page === 0;
    after.disabled = from + PAGE >= found.length;
  }
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), choice = kind.value;
    found = rows.map((_, number) => number).filter((number) => {
      const [a, b, prompt, winner, , , marks] = rows[number];
      const text = `${a.join("")} ${b.join("")} ${prompt}`.toLowerCase();
      return words.every((word) => text.includes(word)) && (!choice || String(winner) === choice || marks.includes(choice));
    });
    page = 0;
    show();
  }
  search.addEventListener("input", find);
  kind.addEventListener("change", find);
  before.addEventListener("click", () => { page -= 1; show(); });
  after.addEventListener("click", () => { page += 1; show(); });
  box.hidden = false;
  show();
}

/** Pages of pairs by the address after the hash, so that the browser's own back button works. */
async function startRoutes(about) {
  const overview = one("#overview"), place = one("#pair"), title = document.title;
  let rows, from = 0, origin = null, block = { number: -1, pairs: [] };
  async function pair(number) {
    const needed = Math.floor((number - 1) / about.block);
    if (block.number !== needed) block = { number: needed, pairs: await unpack(`b${needed}`) };
    return parse(block.pairs[(number - 1) % about.block]);
  }
  async function go() {
    const number = Number(/^#\/pair\/(\d{1,9})$/.exec(location.hash)?.[1] ?? 0);
    if (number < 1 || number > about.pairs) {
      const left = place.hidden ? null : place.dataset.number;
      overview.hidden = false;
      place.hidden = true;
      place.replaceChildren();
      document.title = title;
      if (left) {
        window.scrollTo({ top: from, behavior: "instant" });
        // Back to the link that led away, or to another that can be seen.
        const links = all(`a[href="#/pair/${left}"]`, overview).filter((link) => link.checkVisibility());
        (links.find((link) => link === origin) ?? links[0])?.focus({ preventScroll: true });
      }
      return;
    }
    if (place.hidden) [from, origin] = [window.scrollY, document.activeElement];
    const page = await pair(number);
    const crumbs = make("nav", { class: "crumbs", "aria-label": "Pairs" });
    crumbs.append(make("a", { href: "#/" }, "All results"), make("span", { class: "quiet" }, `Pair ${number} of ${about.pairs}`));
    if (number > 1) crumbs.append(make("a", { href: `#/pair/${number - 1}` }, "Previous pair"));
    if (number < about.pairs) crumbs.append(make("a", { href: `#/pair/${number + 1}` }, "Next pair"));
    place.replaceChildren(crumbs, page);
    place.dataset.number = String(number);
    overview.hidden = true;
    place.hidden = false;
    fillPictures(place);
    startPlayers(place);
    document.title = `Pair ${number}, ${title}`;
    window.scrollTo({ top: 0, behavior: "instant" });
    one("h1", place)?.focus({ preventScroll: true });
  }
  const list = one("[data-finder]");
  try {
    rows = await unpack("index");
    if (list) startFinder(list, rows);
    window.addEventListener("hashchange", go);
    await go();
  } catch (error) {
    if (!(error instanceof ReferenceError)) throw error;
    list?.replaceWith(make("p", { class: "absent" }, "This browser is too old to open single pairs."));
  }
}

one(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  const to = all("h1").find((heading) => heading.offsetParent !== null) ?? one("main");
  to.focus();
  to.scrollIntoView();
});
fillPictures(document);
startSwitch(document);
const about = document.getElementById("about");
if (about) startRoutes(JSON.parse(about.textContent));
else startPlayers(one("main"));
