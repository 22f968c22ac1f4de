// One judged pair: the verdict first, both clips side by side, what the judge saw and wrote, and details.

import { capitalize, count, draw, fileName, h, listWarnings, makeTable, makeTitle, moment } from "./dom.js";
import { nameOf, numbers, one, percent, position, quiet, quotePrompt, rowHead, said, visible } from "./dom.js";
import { makeScreens, makeVideo, startPlayers } from "./players.js";

const KEYS = ["OA", "TA", "VQ", "MQ"];
const SIDES = ["tie", "one", "two"];
const OUTCOMES = { final: "final answer", tool: "asked for frames", correction: "the reply could not be used" };
const STOPS = { limit: "The reply was cut off at its limit.", loop: "The reply ran in a loop, and was ended." };

/** What lies in this page under an id: a picture, or a copy of a clip. */
const contentOf = (id) => document.getElementById(id)?.textContent ?? "";

/** The picture of a clip's frame: in this page, or an address; empty if there is none. */
export const pictureOf = ({ frames }, source) =>
  typeof frames === "string" ? frames + source : source in frames ? contentOf(frames[source]) : "";

/** Where a clip is played from; empty if it cannot be played. */
export const filmOf = ({ address }) => (address.startsWith("#") ? contentOf(address.slice(1)) : address);

/** What shows a clip: pictures cannot be played, but for their copy in this page or on a server. */
function formOf(name, address) {
  if (/^[#/]/.test(address)) return "video";
  if (/%.*\.(png|jpe?g)(@[\d.]+)?$/i.test(name)) return "pictures";
  return /\.(gif|webp)$/i.test(name) ? "animation" : "video";
}

export const makeChip = (video) => h.span({ class: `chip v${video}` }, `Video ${video}`);

/** A choice in words, in the colour of its side. */
function makeChoice(words, preference) {
  const side = !preference ? "not-judged" : preference.undecided ? "undecided" : SIDES[preference.winner];
  return h.span({ class: `choice ${side}` }, capitalize(words));
}

/** Where in a clip some frames lie; the line `head` moves while the clips play. */
export function drawMoments(seconds, length, label, video) {
  const whole = Math.max(length, ...seconds);
  const marks = seconds.map((at) => {
    const x = position(at / whole);
    return draw("line", { class: "mark", x1: x, x2: x, y1: 3, y2: 17 });
  });
  const track = draw("line", { class: "track", x1: 0, x2: "100%", y1: "50%", y2: "50%" });
  const head = draw("line", { class: "head", x1: 0, x2: 0, y1: 0, y2: "100%" });
  const own = { class: `moments v${video}`, role: "img", "aria-label": label, "data-video": video };
  return draw("svg", own, track, whole > 0 && marks, head);
}

/** Video 1 from the left, video 2 from the right, a tie between them. */
function drawOdds({ tie, 1: first, 2: second }) {
  const parts = [["one", 0, first], ["tie", first, tie], ["two", 1 - second, second]].filter(([, , share]) => share);
  const rects = parts.map(([side, at, share]) =>
    draw("rect", { class: side, x: position(at), y: 0, width: position(share), height: "100%" }));
  return draw("svg", { class: "odds", "aria-hidden": "true" }, rects);
}

function listPreferences({ verdict, disagreements }, { names, choices }) {
  const preferences = { ...verdict.dimensions, ...verdict.own, OA: verdict.overall };
  const rows = Object.keys(names).map((key) => {
    const preference = preferences[key];
    const odds = verdict.source === "identical" ? null : preference?.probabilities;
    const differ = disagreements.includes(key) && h.span({ class: "tag" }, "orders disagree");
    const cells = [["Video 1", "1"], ["Tie", "tie"], ["Video 2", "2"]].map(([name, of]) =>
      h.td({ class: "number", "data-name": name }, odds ? percent(odds[of]) : "–"));
    return h.tr({ class: key === "OA" ? "overall" : null },
      rowHead(h.bdi(names[key])),
      h.td(makeChoice(choices[key], preference), differ),
      h.td({ class: "bar" }, odds && drawOdds(odds)),
      cells,
    );
  });
  const headings = ["Dimension", "Better", "Probability", ...numbers("Video 1", "Tie", "Video 2")];
  return makeTable("preferences", "The verdict, with the model's own probabilities", headings, rows);
}

function showVerdict(judgement, words) {
  const { verdict, orders, model, timings } = judgement;
  const rounds = count(orders.flatMap((order) => order.rounds).length, "round");
  const ran = orders.length ? [orders.length === 2 ? "both orders" : "one order", rounds] : [];
  const facts = timings.total ? [...ran, `${timings.total.toFixed(1)}\u00a0s`] : ran;
  const clips = judgement.inputs.map((clip, at) => {
    const size = `${moment(clip.duration_seconds)}, ${clip.width}\u00a0×\u00a0${clip.height}`;
    const name = fileName(nameOf(clip.path), clip.path);
    return h.li(makeChip(at + 1), " ", name, " ", quiet(size));
  });
  return h.header({ class: "verdict" },
    h.h1({ class: SIDES[verdict.overall.winner], tabindex: -1 }, words.headline),
    h.p({ class: "how" }, "Judged by ", h.bdi(model.name), facts.map((fact) => ` · ${fact}`)),
    words.lines.map((line) => h.p({ class: "how" }, h.bdi(`${capitalize(line)}.`))),
    listWarnings(words.warnings),
    quotePrompt(judgement.prompt),
    h.ul({ class: "names" }, clips),
    listPreferences(judgement, words),
  );
}

function showMeasures({ orders }, { measures, measured }) {
  if (!measures.length) return "";
  const reads = orders.some((order) => order.rounds.some((round) => round.report));
  const rows = measures.map(({ name, unit, values, better, words }) => {
    const cells = values.map((value) => h.td({ class: "number" }, value));
    const choice = h.span({ class: better ? `choice ${SIDES[better]}` : "quiet" }, capitalize(words));
    return h.tr(rowHead(capitalize(name), " ", quiet(unit)), cells, h.td(choice));
  });
  const headings = ["Measure", ...numbers("Video 1", "Video 2"), "Better"];
  const known = reads ? "reads a summary of what was measured." : "does not see these values.";
  const lead = h.p(quiet(`Of all frames of each clip. The judge ${known}`));
  const table = makeTable("measures", "What was measured of both clips, and the better one", headings, rows);
  return h.section(h.h2("Measured"), lead, measured.map((line) => h.p(`${capitalize(line)}.`)), table);
}

/** What shows a clip in a page: a player, an image, or the reason why there is none. */
function showClip(clip, video, place, poster) {
  const name = nameOf(clip.path);
  const label = `Video ${video}: ${name}`;
  const source = filmOf(place);
  const { width, height, fps, duration_seconds: seconds } = clip;
  let shown;
  const form = formOf(name, place.address);
  if (form === "pictures") {
    const why = "which a page cannot play. A report that is made with --embed has a copy that plays.";
    shown = h.p({ class: "absent" }, said(name), ` are ${clip.frames} numbered pictures, ${why}`);
  } else if (source && form === "animation") {
    shown = h.img({ src: source, width, height, alt: label });
  } else if (source) {
    shown = makeVideo(video, source, label, { poster, seconds, fps, width, height });
  } else {
    const why = place.note || place.missing || `it was not found where it was judged (${clip.path}), or has changed`;
    shown = h.p({ class: "absent" }, said(name), " cannot be played here: ", said(why), ".");
  }
  const note = source && place.note ? quiet(place.note) : "";
  return [shown, makeChip(video), " ", fileName(name), " ", note];
}

/** The frames of one clip that a round showed. The judge counts them through both videos, in the order shown. */
function showStrip(frames, clip, video, place, before, what) {
  const title = h.p({ class: "quiet" }, makeChip(video), " ", what);
  const [width, height] = clip.shown_size;
  const pictures = frames.map((frame) => [frame, pictureOf(place, frame.source_frame)]).filter(([, src]) => src);
  if (!pictures.length) {
    const why = said(place.missing || "left out, to keep this page small");
    const moments = h.ul({ class: "moments-only" }, frames.map((frame) => h.li(moment(frame.seconds))));
    return h.div(title, h.p({ class: "absent" }, "Frames not shown: ", why, "."), moments);
  }
  const items = pictures.map(([frame, src]) => {
    const number = before + frame.index + 1;
    const alt = `Video ${video} at ${moment(frame.seconds)}, the judge's frame ${number}`;
    const seek = h.span({ class: "moment", "data-seek": frame.seconds }, moment(frame.seconds));
    const caption = h.figcaption(seek, quiet(`frame ${number}`));
    const loading = src.startsWith("data:") ? null : "lazy";
    return h.li(h.figure(h.img({ src, alt, width, height, loading }), caption));
  });
  return h.div(title, h.ul({ class: "strip" }, items));
}

function describeGranted(frames) {
  const list = (video) => frames.filter((frame) => frame.video === video).map(({ seconds }) => moment(seconds));
  const name = (video) => `video ${video} at ${list(video).join(", ")}`;
  const parts = [1, 2].filter((video) => list(video).length).map(name);
  return `${count(frames.length, "frame")}: ${parts.join("; ")}.`;
}

/** What a round answered or leaned to, in terms of the videos as given: exchanged, the judge's first is video 2. */
function showAnswer({ answer, recommendation }, first) {
  const choices = answer ?? recommendation?.choices;
  if (!choices) return "";
  const confidence = recommendation?.confidence ? `, with confidence ${recommendation.confidence} of 5` : "";
  const marks = KEYS.map((key) => {
    const written = choices[key];
    const winner = written && first === 2 ? 3 - written : written;
    const words = winner === null || winner === undefined ? "Not judged" : winner ? `Video ${winner}` : "Tie";
    const side = words === "Not judged" ? "not-judged" : SIDES[winner];
    return h.li(quiet(key), " ", h.span({ class: `choice ${side}` }, words));
  });
  return titled(answer ? "Answered" : `Leaned to${confidence}`, h.ul({ class: "marks" }, marks));
}

const titled = (title, ...parts) => h.div(h.h5(title), parts);
const quote = (text) => h.p({ class: "text", dir: "auto" }, h.bdi(text));

function showReply({ text, tokens_in: read, tokens_out: written }, withheld) {
  const title = h.summary(`The reply, ${withheld ? "without its values of what was not judged" : "as it was written"}`);
  const own = { dir: "auto", tabindex: 0, role: "region", "aria-label": "The reply" };
  return h.details(title, h.pre(own, h.bdi(text)), h.p({ class: "quiet" }, `${read} tokens read, ${written} written`));
}

function showRound(judgement, order, at, media, withheld) {
  const round = order.rounds[at];
  const [before, next] = [order.rounds[at - 1], order.rounds[at + 1]];
  const again = before?.outcome === "tool" ? "The frames that it asked for" : "Shown again";
  const what = before ? again : "The first frames";
  const strips = [order.first, 3 - order.first].map((video) => {
    const frames = round.frames.filter((frame) => frame.video === video);
    const clip = judgement.inputs[video - 1];
    const earlier = video === order.first ? 0 : judgement.settings.workspace;
    return frames.length && showStrip(frames, clip, video, media[clip.sha256], earlier, what);
  });
  const written = [["Read", round.report?.trim()], ["Saw", round.snapshot], ["Thought", round.thought]];
  const granted = round.outcome === "tool" && next ? h.p(describeGranted(next.frames)) : "";
  const call = h.p(h.code({ class: "call" }, h.bdi(round.call ?? "")));
  const words = h.div({ class: "words" },
    written.filter(([, text]) => text).map(([title, text]) => titled(title, quote(text))),
    round.call !== null && titled("Asked for", granted, call),
    showAnswer(round, order.first),
    round.correction && titled("Was told", quote(`The reply could not be used: ${round.correction}.`)),
    STOPS[round.stop] && h.p({ class: "absent" }, STOPS[round.stop]),
  );
  const outcome = h.span({ class: `outcome ${round.outcome}` }, OUTCOMES[round.outcome]);
  const title = h.h4(`Round ${round.number}`, outcome);
  return h.li({ class: "round" }, title, strips.filter(Boolean), words, showReply(round, withheld));
}

/** The frames on the timeline of one clip, a line for each round. */
function showTimeline(clip, video, rounds) {
  const length = clip.duration_seconds;
  const lines = rounds.map((round) => {
    const seconds = round.frames.filter((frame) => frame.video === video).map((frame) => frame.seconds);
    if (!seconds.length) return "";
    const at = `at ${seconds.map(moment).join(", ")} of ${moment(length)}`;
    const label = `Video ${video}, frames shown in round ${round.number}, ${at}`;
    return [quiet(`Round ${round.number}`), drawMoments(seconds, length, label, video)];
  });
  const axis = h.p({ class: "axis", "aria-hidden": "true" }, h.span("0"), h.span(moment(length)));
  const title = h.p(makeChip(video), " ", fileName(nameOf(clip.path)));
  return h.div({ class: "timeline" }, title, h.div({ class: "rows" }, lines, h.span(), axis));
}

const EXCHANGED = "Exchanged: in what the judge writes here, “Video 1” is video 2, and “Video 2” is video 1.";

function showOrder(judgement, order, media, withheld) {
  const plain = judgement.orders.length === 1 && order.first === 1;
  const title = h.h3({ class: plain ? "unseen" : null }, `With video ${order.first} shown first`);
  const lines = judgement.inputs.map((clip, at) => showTimeline(clip, at + 1, order.rounds));
  const rounds = order.rounds.map((_, at) => showRound(judgement, order, at, media, withheld));
  const note = order.first === 2 && h.p(quiet(EXCHANGED));
  return h.section({ class: "order" }, title, note, lines, h.ol({ class: "rounds" }, rounds));
}

const PLAIN = { null: "by default", true: "yes", false: "no" };

/** Nested values as rows of a name and a text. */
function listFacts(values, prefix = "") {
  return Object.entries(values).flatMap(([name, value]) => {
    const label = `${prefix}${name}`.replaceAll("_", " ");
    if (value && typeof value === "object" && !Array.isArray(value)) return listFacts(value, `${label}, `);
    const words = PLAIN[value] ?? (Array.isArray(value) ? value.join(", ") : String(value));
    return [h.tr(rowHead(h.bdi(label)), h.td(said(words)))];
  });
}

/** Tables that are folded away, by their titles. */
export function showDetails(folds) {
  const tables = Object.entries(folds).map(([title, values]) =>
    h.details(h.summary(title), makeTable("facts", "", [], listFacts(values))));
  return h.section({ class: "details" }, h.h2("Details"), tables);
}

function listDetails({ inputs, settings, timings, counters, model, profile }) {
  const clips = { "Video 1": inputs[0], "Video 2": inputs[1] };
  return { Clips: clips, Settings: settings, Seconds: timings, Counters: counters, Model: { model, profile } };
}

function showLabel(label, names) {
  const name = (key) => `${names[key]}: ${label.winners[key] ? `video ${label.winners[key]}` : "tie"}`;
  const winners = KEYS.filter((key) => key in label.winners).map(name);
  const row = h.p({ class: "how" }, "Row ", h.bdi(label.name), " of the table");
  return [row, h.p({ class: "lead" }, "People said: ", h.bdi(winners.join("; ")))];
}

function showNoVerdict({ names: [first, second], prompt, errors }) {
  const names = h.p({ class: "how" }, fileName(first), " and ", fileName(second));
  return h.article(makeTitle("No verdict"), names, listWarnings(errors), quotePrompt(prompt));
}

/** The article of a pair: its record, what is said of it in words, and where its clips are (`media`, by sha256). */
export function showPair({ judgement, words, label, failed }, media) {
  if (failed) return showNoVerdict(failed);
  const screens = judgement.inputs.map((clip, at) => {
    const place = media[clip.sha256];
    return showClip(clip, at + 1, place, pictureOf(place, place.middle));
  });
  const saw = judgement.orders.map((order) => showOrder(judgement, order, media, words.withheld));
  const none = h.p("Nothing: both clips are the same file, and no model ran.");
  const players = makeScreens(screens);
  const article = h.article({ class: "pair" },
    label && showLabel(label, words.names),
    showVerdict(judgement, words),
    showMeasures(judgement, words),
    h.section(h.h2("Side by side"), players),
    h.section(h.h2("What the judge saw"), saw.length ? saw : none),
    showDetails(listDetails(judgement)),
  );
  startPlayers(players, article);
  return article;
}

/** Put a page in the place of another, and tell the browser. */
export function showPage(place, content, title) {
  place.replaceChildren(content);
  document.title = visible(title);
  one("h1", place)?.focus({ preventScroll: true });
}
