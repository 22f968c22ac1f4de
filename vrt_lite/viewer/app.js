// The viewer: draws the record that lies in this page, or those that the server sends.

import { address, ask } from "./api.js";
import { all, h, makeTitle, one, put, said, visible } from "./dom.js";
import { showForm } from "./forms.js";
import { showJob } from "./jobs.js";
import { linkRun, showApi, showJudges, showRuns, showUnfinished } from "./lists.js";
import { showDetails, showPair } from "./pair.js";
import { showFinder, startRoutes } from "./pairs.js";
import { showEvaluation, showRanking } from "./results.js";
import { showBallot } from "./vote.js";

const OVERVIEWS = { rank: showRanking, eval: showEvaluation, compare: showEvaluation };
const PAGES = [["/", "Compare"], ["/rank", "Rank"], ["/runs", "Runs"], ["/judges", "Judges"]];
const main = h.main({ id: "main", tabindex: -1 });

/** Data that lies compressed in this page. */
async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const stream = new Blob([Uint8Array.from(packed, (character) => character.charCodeAt(0))]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("deflate"))).json();
}

/** A run: its overview, and every pair at an address of its own. */
function showRun(overview, index, readPair, links = "") {
  const { media, details } = overview;
  const shown = OVERVIEWS[overview.kind](overview, media);
  const folds = details ? showDetails(details) : "";
  const page = h.div({ id: "overview" }, links, shown, showFinder(index), folds);
  return startRoutes(main, page, { title: overview.title, total: index.length, media }, readPair);
}

/** The report that this page is. */
async function showReport(record) {
  document.title = visible(record.title);
  if (record.kind === "pair") return put(main, showPair(record, record.media));
  let block = { number: -1, pairs: [] };
  const readPair = async (number) => {
    const wanted = Math.floor((number - 1) / record.block);
    if (block.number !== wanted) block = { number: wanted, pairs: await unpack(`b${wanted}`) };
    return block.pairs[(number - 1) % record.block];
  };
  record.media = await unpack("media");
  return showRun(record, await unpack("index"), readPair);
}

/** A page of the server, by the address. */
async function showServed(about) {
  const query = new URLSearchParams(location.search);
  const run = query.get("run") ?? "";
  const [, first = "", second = ""] = location.pathname.split("/");
  document.title = `${PAGES.find(([path]) => path === location.pathname)?.[1] ?? "vrt-lite"} · vrt-lite`;
  const pages = {
    "": () => put(main, showForm("compare", about)),
    rank: async () => put(main, showForm("rank", about), await showUnfinished()),
    runs: () => showRuns(main, query.get("search") ?? ""),
    judges: () => showJudges(main),
    docs: () => showApi(main),
    vote: () => showBallot(main, run),
    jobs: () => showJob(main, second),
    run: async () => {
      const { overview, index } = await ask(address("/view/run", { run }));
      const links = h.p({ class: "quiet" }, linkRun(overview.run));
      return showRun(overview, index, (pair) => ask(address("/view/pair", { run: overview.run, pair })), links);
    },
  };
  put(main, h.p({ class: "quiet", role: "status" }, "One moment …"));
  await pages[first]();
}

function showFailure(error) {
  const link = location.protocol !== "file:" && h.p(h.a({ href: "/runs" }, "All runs"));
  put(main, makeTitle("Nothing to show"), h.p({ class: "lead" }, said(error.message)), link);
}

function start() {
  const record = JSON.parse(one("#record").textContent);
  const isServed = record.kind === "server";
  const links = PAGES.map(([href, name]) =>
    h.li(h.a({ href, "aria-current": href === location.pathname && "page" }, name)));
  const nav = h.nav({ "aria-label": "Pages" }, h.ul({ class: "pages" }, links));
  const skip = h.a({ class: "skip", href: "#main", onclick: toResult }, "Skip to the result");
  const made = "Made by vrt-lite. This page is one file and needs no network.";
  const link = h.a({ href: "/docs" }, "API");
  const here = ["vrt-lite on this machine. Nothing here comes from or goes to the network. ", link];
  const top = h.header({ class: "top" }, h.b("vrt-lite"), isServed ? nav : h.span("report"));
  document.body.append(skip, top, main, h.footer({ class: "foot" }, h.p(isServed ? here : made)));
  const shown = isServed ? showServed(record) : showReport(record);
  shown.catch(showFailure).finally(() => (document.documentElement.dataset.ready = ""));
}

function toResult(event) {
  event.preventDefault();
  const to = all("h1").find((heading) => heading.offsetParent !== null) ?? main;
  to.focus();
  to.scrollIntoView();
}

start();
