// Jobs at work: their events are shown as they come, and at the end their result.

import { address, ask, complain, doing, follow, tell } from "./api.js";
import { add, all, count, draw, duration, fileName, h, makeTitle, moment, position } from "./dom.js";
import { put, quotePrompt, said, visible } from "./dom.js";
import { drawMoments, makeChip, showPage, showPair } from "./pair.js";
import { makeScreens, makeVideo, startPlayers } from "./players.js";
import { MEASURED, showGroupWords, showLadder } from "./results.js";

const ENDS = { done: "Done", failed: "It failed", cancelled: "Cancelled" };
const WORDS = { queued: "Waiting for the engine", running: "Beginning", ...ENDS };
const NOTES = { snapshot: "Saw", think: "Thinks", recommend: "Leans to" };
const PARTS = { ...NOTES, final: "Answers", answer: "Answers", call: "Asks for" };

/** What the pages of all jobs have: state, progress, time left, and a button that ends the job. */
function makeControls(id) {
  const stage = h.span({ role: "status" }, WORDS.queued);
  const left = h.span({ class: "quiet" });
  const bar = h.progress({ max: 1, "aria-label": "This step" });
  const press = () => ask(`/v1/jobs/${id}`, "DELETE").catch((error) => complain(stage, error));
  const cancel = h.button({ type: "button", onclick: press, hidden: true }, "Cancel");
  let [running, end] = [false, null];
  const showTime = () => {
    const seconds = (end - Date.now()) / 1000;
    const rest = end === null ? "" : seconds > 0 ? `about ${duration(seconds)} left` : "nearly done";
    if (left.textContent !== rest) left.textContent = rest;
  };
  setInterval(showTime, 500);
  // What a job that has ended reports late is of no use any more.
  const setLeft = (seconds) => {
    end = running && Number.isFinite(seconds) ? Date.now() + 1000 * seconds : null;
    showTime();
  };
  return {
    head: [h.p({ class: "how" }, stage, " ", left), bar],
    actions: h.p({ class: "actions" }, cancel),
    stage,
    setState({ state }) {
      tell(stage, WORDS[state]);
      running = state === "running";
      setLeft(null);
      cancel.hidden = state in ENDS;
      bar.hidden = !running;
      bar.removeAttribute("value");
    },
    setStep(words, done, total) {
      if (stage.textContent !== visible(words)) tell(stage, words);
      bar.toggleAttribute("value", Boolean(total));
      if (total) bar.value = done / total;
    },
    setLeft,
    fail({ state, error }, title) {
      if (error) complain(stage, error);
      title.textContent = state === "cancelled" ? "Cancelled" : "No result";
    },
  };
}

/** What a comparison has come to: its verdict, and what can be done next. */
function showOutcome(main, { job, run, pair, media }) {
  const article = showPair(pair, media);
  const status = h.span({ role: "status", class: "quiet" });
  const again = doing(status, async () => {
    const next = await ask("/v1/compare", "POST", { ...job.request, both_orders: true, wait: false });
    location.assign(`/jobs/${next.id}`);
  });
  const button = h.button({ type: "button", onclick: again }, "Judge the other order too");
  const all = h.a({ href: address("/run", { run }) }, "All comparisons of this day");
  const others = h.a({ href: "/" }, "Compare two others");
  add(article, h.p({ class: "actions" }, !job.request.both_orders && button, status, others, all));
  main.classList.remove("live");
  showPage(main, article, pair.words.headline);
}

/** A clip of a comparison while it is at work. */
function showScreen({ name, address: source }, at) {
  const gone = h.p({ class: "absent" }, h.bdi(name), " is not there any more.");
  const shown = source ? makeVideo(at + 1, source, `Video ${at + 1}: ${name}`) : gone;
  return [shown, makeChip(at + 1), " ", fileName(name)];
}

/** What the judge writes, as its parts come: one that goes on is continued. */
function startRound(number) {
  const words = h.div({ class: "words" });
  const box = h.section({ class: "round" }, h.h3(`Round ${number}`), words);
  let [last, text] = [null, null];
  function write([kind, written]) {
    if (kind !== last || !text) {
      text = h.p({ class: "text", dir: "auto" });
      add(words, h.div(PARTS[kind] && h.h4(PARTS[kind]), text));
      last = kind;
    }
    // A space before the first word would be a line of its own.
    add(text, text.firstChild ? written : written.trimStart());
  }
  return { box, write, end: (outcome) => add(box, h.p({ class: "quiet" }, outcome)) };
}

function watchComparison(main, { job, clips }) {
  const controls = makeControls(job.id);
  const written = h.div();
  const lengths = [1, 1];
  const lines = clips.map((_, at) => drawMoments([], 1, `Moments of video ${at + 1} that the judge looks at`, at + 1));
  const strips = clips.map(() => h.ul({ class: "strip live" }));
  const title = makeTitle("Comparing");
  let [round, places] = [null, []];

  function mark({ video, source, seconds, called }) {
    const x = position(seconds / lengths[video - 1]);
    const kind = called ? "called" : "";
    add(lines[video - 1], draw("line", { class: `mark ${kind}`, x1: x, x2: x, y1: 3, y2: 17 }));
    const at = moment(seconds);
    const src = places[video - 1] && `${places[video - 1].replace(/\.mp4$/, "")}/frames/${source}`;
    const image = src ? h.img({ src, alt: `Video ${video} at ${at}` }) : "";
    const words = h.figcaption(at, called && " asked for");
    add(strips[video - 1], h.li({ class: kind }, h.figure(image, words)));
  }
  const looks = clips.map((_, at) => h.div({ class: "timeline" }, h.p(makeChip(at + 1)), lines[at], strips[at]));
  const players = makeScreens(clips.map(showScreen));
  put(main, title, controls.head, quotePrompt(job.request.prompt), controls.actions, players);
  add(main, h.section(h.h2("What the judge looks at"), looks), h.section(h.h2("What it writes"), written));
  main.classList.add("live");
  startPlayers(players, main);
  follow(job.id, {
    state: controls.setState,
    stage: ({ words, done, total }) => controls.setStep(words, done, total),
    progress: (told) => controls.setLeft(told.seconds_left),
    pair(told) {
      told.clips.forEach((clip, at) => (lengths[at] = clip.seconds || 1));
      places = told.clips.map((clip) => clip.address);
      for (const old of [...lines, ...strips].flatMap((place) => all(".mark, li", place))) old.remove();
      const other = "The other way round: what the judge now calls Video 1 is video 2.";
      put(written, told.exchanged && h.p({ class: "quiet" }, other));
    },
    round(told) {
      told.frames.forEach(mark);
      round = startRound(told.number);
      add(written, round.box);
      controls.setStep(`Round ${told.number}`, 0, 0);
    },
    wrote: (told) => told.parts.forEach((part) => round?.write(part)),
    outcome: (told) => round?.end(told.words),
    async end(told) {
      if (told.state !== "done") return controls.fail(told, title);
      const view = await ask(`/view/jobs/${job.id}`).catch((error) => controls.fail({ error }, title));
      if (view) showOutcome(main, view);
    },
  });
}

function watchRanking(main, { job }) {
  const controls = makeControls(job.id);
  const title = makeTitle("Ranking");
  const last = h.p({ class: "quiet" });
  const board = h.div(h.p({ class: "quiet" }, "Nothing is judged yet."));
  const leaders = h.section(h.h2("Leaderboard"), h.p({ class: "lead" }, MEASURED), board);
  put(main, title, controls.head, quotePrompt(job.request.prompt), controls.actions, last, leaders);
  follow(job.id, {
    state: controls.setState,
    progress(told) {
      controls.setStep(`${told.done} of at most ${count(told.most, "judgement")}`, told.done, told.most);
      controls.setLeft(told.seconds_left);
    },
    pair: ({ words }) => put(last, "Last judged: ", said(words)),
    ladder({ groups, judge, media }) {
      if (!groups.some((group) => group.ladder.standings.length)) return;
      const boards = groups.map((group) => [showGroupWords(group), showLadder(group, "OA", "Overall", media)]);
      put(board, h.p({ class: "quiet", dir: "auto" }, `Judged by ${judge}.`), boards);
    },
    end(told) {
      if (told.state !== "done") return controls.fail(told, title);
      title.textContent = "Ranked";
      leaders.after(h.p(h.a({ href: address("/run", { run: told.result.run }) }, "Open the whole result")));
    },
  });
}

/** The page of a job: at work, or its result. */
export async function showJob(main, id) {
  const told = await ask(`/view/jobs/${id}`);
  if (told.pair) showOutcome(main, told);
  else if (told.job.kind === "compare") watchComparison(main, told);
  else watchRanking(main, told);
}
