// The forms: clips are dropped, chosen or picked from a folder of this machine, and sent with a question.

import { address, ask, complain, doing, tell } from "./api.js";
import { all, bytes, h, makeField, makeTitle, middle, moment, one, put, quiet } from "./dom.js";

const MOST_PICTURED = 60;
const isPattern = (path) => /%\d*d/.test(path);
const isPicture = (file) => ["image/png", "image/jpeg"].includes(file.type);

/** The files that were dropped; a folder stands for the clips and pictures in it. */
async function listDropped(transfer, accepted) {
  const isWanted = ({ name }) => accepted.some((end) => name.toLowerCase().endsWith(end)) && !name.startsWith(".");
  const wait = (owner, method) => new Promise((done, fail) => owner[method](done, fail));
  // All before any wait: then the browser forgets them.
  const dropped = [...transfer.items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile()).filter(Boolean);
  const files = [];
  for (const entry of dropped) {
    if (!entry.isDirectory) files.push(entry.isFile ? await wait(entry, "file") : entry);
    const reader = entry.isDirectory && entry.createReader();
    for (let part = reader; part && part.length !== 0; ) {
      part = await wait(reader, "readEntries");
      for (const file of part.filter((found) => found.isFile && isWanted(found))) files.push(await wait(file, "file"));
    }
  }
  return files;
}

/** A film of which the middle is shown; it plays while the pointer is on it. `know` gets its length and its size. */
function makeFilm(src, name, know) {
  const onloadedmetadata = () => {
    film.currentTime = film.duration / 2;
    know(`${moment(film.duration)}, ${film.videoWidth} × ${film.videoHeight}`);
  };
  const onerror = () => film.replaceWith(h.span({ class: "blank" }));
  const hover = { onpointerenter: () => film.play().catch(() => {}), onpointerleave: () => film.pause() };
  const own = { src, playsinline: true, preload: "metadata", "aria-label": `Middle of ${name}` };
  const film = h.video({ ...own, ...hover, onloadedmetadata, onerror });
  film.muted = true;
  return film;
}

/** A chosen clip with its picture, its length and its size, as far as this browser can tell. */
function showChosen({ name, file, pictures, address: at }, isPictured, remove) {
  const shown = pictures ? middle(pictures) : file;
  const size = (pictures ?? [file ?? { size: 0 }]).reduce((sum, part) => sum + part.size, 0);
  const facts = quiet(size && bytes(size));
  const source = isPictured ? (at ?? URL.createObjectURL(shown)) : "";
  const know = (words) => (facts.textContent = size ? `${words}, ${bytes(size)}` : words);
  const isImage = pictures || shown?.type.startsWith("image/");
  const picture = isImage ? h.img({ src: source, alt: `Middle of ${name}` }) : makeFilm(source, name, know);
  const button = h.button({ type: "button", "aria-label": `Leave out ${name}`, onclick: remove }, "Leave out");
  const about = h.span({ class: "about" }, h.bdi(name), facts);
  return h.li(isPictured ? picture : h.span({ class: "blank" }), about, button);
}

/** A place for clips: { name, file }, { name, pictures } or { name, path }. A clip too many goes to `pass`. */
function makeDrop(id, title, { many, accepted, folders, changed, pass }) {
  const taken = [];
  const list = h.ul({ class: "chosen", "aria-live": "polite" });
  const input = h.input({ id: `${id}-file`, type: "file", accept: accepted.join(), multiple: true });
  const what = `Drop ${many ? "clips or a folder" : "a clip"} here, or choose.`;
  const hint = `${what} All numbered pictures of a clip are chosen at once.`;

  function show() {
    for (const old of all("[src^='blob:']", list)) URL.revokeObjectURL(old.src);
    put(list, taken.map((entry, number) => showChosen(entry, number < MOST_PICTURED, () => leaveOut(number))));
    changed();
  }
  function leaveOut(number) {
    taken.splice(number, 1);
    show();
    input.focus();
  }
  function take(entries) {
    if (!entries.length) return;
    if (many) taken.push(...entries);
    else taken.splice(0, taken.length, entries[0]);
    if (!many && entries.length > 1) pass(entries[1]);
    show();
  }
  /** Take files: several pictures at once are one clip. */
  function takeFiles(files) {
    const pictures = files.filter(isPicture);
    const clips = pictures.length > 1 ? files.filter((file) => !isPicture(file)) : files;
    const entries = clips.map((file) => ({ name: file.name, file }));
    if (pictures.length > 1) entries.push({ name: `${pictures.length} numbered pictures`, pictures });
    take(entries);
  }
  input.addEventListener("change", () => {
    takeFiles([...input.files]);
    input.value = "";
  });
  const start = () => browse(take, many);
  const pick = h.button({ type: "button", "data-browse": id, onclick: start }, "From a folder of this machine");
  const about = [h.label({ for: `${id}-file` }, title), h.p({ class: "quiet" }, hint)];
  const box = h.div({ class: "drop", "data-drop": id }, about, input, folders.length > 0 && pick, list);
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    box.addEventListener(kind, async (event) => {
      event.preventDefault();
      box.classList.toggle("over", ["dragenter", "dragover"].includes(kind));
      if (kind === "drop") takeFiles(await listDropped(event.dataTransfer, accepted));
    });
  }
  return { box, taken, take, input };
}

/** Choose a clip, or a whole folder, of those that the server may use. */
function browse(take, many) {
  const path = h.p({ class: "quiet" });
  const entries = h.ul({ class: "entries" });
  const button = (words, act, options = {}) => h.button({ type: "button", onclick: act, ...options }, words);
  const whole = button("Take all clips of this folder", () => {}, { hidden: true });
  const close = () => dialog.close();
  const title = h.h2({ id: "browser-title" }, "Choose from this machine");
  const actions = h.p({ class: "actions" }, whole, button("Close", close));
  const dialog = h.dialog({ id: "browser", "aria-labelledby": "browser-title" }, title, path, entries, actions);

  async function open(folder) {
    const found = await ask(address("/v1/folders", { path: folder })).catch((error) => complain(path, error));
    if (!found) return;
    put(path, h.bdi(found.path || "Allowed folders"));
    const line = (words, act) => h.li(button(words, act));
    const choose = (clips, isLast) => () => {
      take(clips);
      if (isLast) close();
    };
    const name = (clip) => clip.name + (isPattern(clip.path) ? " (numbered pictures)" : "");
    const up = folder && line("↑ All allowed folders", () => open(""));
    const folders = found.folders.map((inner) => line(`${inner.name}/`, () => open(inner.path)));
    put(entries, up, folders, found.clips.map((clip) => line(name(clip), choose([clip], !many))));
    whole.hidden = !many || !found.clips.length;
    whole.onclick = choose(found.clips, true);
    one("button", entries)?.focus();
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  open("");
}

/** Send what was chosen, unless it is on the server. Returns how the server names it. */
async function send(entry, fps, status) {
  if (entry.path) return fps && isPattern(entry.path) ? `${entry.path}@${fps}` : entry.path;
  tell(status, `Taking ${entry.name}`);
  if (!entry.pictures) {
    entry.clip ??= (await ask(address("/v1/clips", { name: entry.name }), "POST", entry.file)).clip;
    return entry.clip;
  }
  const body = new FormData();
  body.append("fps", fps);
  for (const picture of entry.pictures) body.append("clip", picture, picture.name);
  return (await ask("/v1/clips", "POST", body)).clip;
}

const makeCheck = (name, checked, words) =>
  h.p({ class: "field check" }, h.label(h.input({ type: "checkbox", name, checked }), " ", words));

/** The form to compare two clips, or to rank several. `about` is what the server allows. */
export function showForm(kind, about) {
  const isRank = kind === "rank";
  const { accepted, folders, judges } = about;
  const status = h.span({ role: "status", class: "quiet" });
  const fps = { min: 0.01, max: about.most_fps, step: "any", inputmode: "decimal", placeholder: about.assumed_fps };
  const rate = makeField("Pictures a second", h.input({ id: "fps", type: "number", ...fps }));
  rate.hidden = true;
  const drops = {};
  function changed() {
    const taken = Object.values(drops).flatMap((drop) => drop.taken);
    rate.hidden = !taken.some((entry) => entry.pictures || isPattern(entry.path ?? ""));
  }
  const add = (id, title, pass) => {
    drops[id] = makeDrop(id, title, { many: isRank, accepted, folders, changed, pass });
    return drops[id].box;
  };
  const two = () => [["a", "Video 1", "b"], ["b", "Video 2", "a"]].map(([id, title, other]) =>
    add(id, title, (clip) => drops[other].take([clip])));
  const boxes = isRank ? add("clips", "Clips made from one prompt") : h.div({ class: "two" }, two());
  const options = judges.map(([name, value]) => h.option({ value }, name));
  const hint = "What the clips were made from; may be empty";
  const prompt = h.textarea({ id: "prompt", rows: 3, maxlength: about.longest_prompt, placeholder: hint });
  const budget = { id: "budget", type: "number", min: 1, inputmode: "numeric", placeholder: "as many as it takes" };
  const both = "Judge both orders: twice the time, and no preference for the first or the second";
  const submit = h.button({ class: "play", type: "submit" }, isRank ? "Rank" : "Compare");
  const form = h.form({ class: "ask" },
    boxes,
    rate,
    makeField("Prompt", prompt),
    makeField("Judge", h.select({ id: "judge" }, options)),
    isRank && makeField("At most so many judgements", h.input(budget)),
    makeCheck("both_orders", isRank, isRank ? "Judge each pair in both orders" : both),
    isRank && makeCheck("exclude_flagged", false, "Leave out clips with a measured fault, such as stutter"),
    h.p({ class: "actions" }, submit, " ", status),
  );
  const begin = doing(status, async () => {
    const few = Object.values(drops).find(({ taken }) => taken.length < (isRank ? 2 : 1));
    few?.input.focus();
    if (few) throw new Error(isRank ? "Choose two clips or more." : "Choose two clips.");
    const { both_orders: orders, exclude_flagged: flagged, judge, budget: most } = form.elements;
    const body = { prompt: prompt.value, both_orders: orders.checked, wait: false };
    if (judge.value) body.model = judge.value;
    if (flagged) body.exclude_flagged = flagged.checked;
    if (most?.value) body.budget = Number(most.value);
    for (const [id, { taken }] of Object.entries(drops)) {
      const clips = [];
      for (const entry of taken) clips.push(await send(entry, one("input", rate).value, status));
      body[id] = isRank ? clips : clips[0];
    }
    const job = await ask(`/v1/${kind}`, "POST", body);
    location.assign(`/jobs/${job.id}`);
  });
  form.addEventListener("submit", begin);
  return [makeTitle(isRank ? "Which clips are the best?" : "Which of two clips is better?"), form];
}
