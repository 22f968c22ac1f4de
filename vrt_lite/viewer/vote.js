// Votes: two clips side by side, nobody is told which is which; and how far each judge agrees.

import { address, ask, complain, tell } from "./api.js";
import { add, h, makeTable, makeTitle, percent, put, rowHead } from "./dom.js";
import { makeScreens, makeVideo, startPlayers } from "./players.js";

const BALLOT = [[1, "Left is better"], [0, "No difference"], [2, "Right is better"]];
const KEPT = ["Kept: no difference.", "Kept: left.", "Kept: right."];

function showAgreement(judges) {
  const headings = ["Judge", "Agrees", "Share", "95 % interval"];
  const rows = judges.map(({ judge, right, of, value, low, high }) => {
    const cells = [`${right} of ${of}`, percent(value), `${percent(low)} to ${percent(high)}`];
    return h.tr(rowHead(h.bdi(judge)), cells.map((cell, at) => h.td({ "data-name": headings[at + 1] }, cell)));
  });
  return makeTable("figures stacks", "How far each judge agrees with your votes", headings, rows);
}

/** The page to vote on a run's pairs. */
export async function showBallot(main, run) {
  const of = (path) => address(path, { run });
  const counted = h.span({ role: "status" });
  const prompt = h.bdi({ dir: "auto" });
  const place = h.div();
  const buttons = BALLOT.map(([choice, words]) =>
    h.button({ type: "button", onclick: () => vote(choice) }, words, " ", h.kbd(choice)));
  const ballot = h.div({ class: "ballot", role: "group", "aria-label": "Which is better?", hidden: true }, buttons);
  const status = h.p({ role: "status" });
  const agreement = h.div(h.p({ class: "quiet" }, "Vote first."));
  let ticket = null;

  async function next() {
    const told = await ask(of("/v1/votes/next"));
    counted.textContent = `${told.votes} of ${told.pairs} pairs voted on`;
    if (told.judges.length) put(agreement, showAgreement(told.judges));
    ticket = told.ticket;
    ballot.hidden = !ticket;
    put(prompt, told.prompt);
    put(place);
    const rest = "The clips of the other pairs cannot be played from here.";
    if (!ticket) return tell(status, told.votes < told.pairs ? rest : "All pairs are voted on.");
    const side = (source, name, at) => [makeVideo(at, source, name), h.span({ class: "file" }, name)];
    const players = makeScreens([side(told.left, "Left", 1), side(told.right, "Right", 2)]);
    add(place, players);
    startPlayers(players, place);
  }
  async function vote(choice) {
    if (!ticket) return;
    const given = ticket;
    ticket = null;
    try {
      await ask("/v1/votes", "POST", { ticket: given, choice });
      tell(status, KEPT[choice]);
      await next();
    } catch (error) {
      complain(status, error);
      next().catch(() => {}); // the same pair again, if the vote was not kept
    }
  }
  document.addEventListener("keydown", (event) => {
    const busy = event.ctrlKey || event.altKey || event.metaKey || event.repeat;
    if (busy || event.target.closest("input, select, textarea") || !["0", "1", "2"].includes(event.key)) return;
    event.preventDefault();
    vote(Number(event.key));
  });
  const table = h.a({ href: of("/v1/votes") }, "Your votes as a table for ", h.code("vrt-lite eval"));
  const title = [makeTitle("Your own eye"), h.p({ class: "how" }, h.bdi(run), " · ", counted)];
  const judges = h.section(h.h2("Judges and you"), agreement, h.p(table));
  await next();
  put(main, title, h.blockquote({ class: "prompt" }, prompt), place, ballot, status, judges);
}
