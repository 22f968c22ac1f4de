// Lists of what there is: all runs and jobs, the judges, and the API.

import { address, ask } from "./api.js";
import { bytes, capitalize, h, makeTable, makeTitle, put, quiet, rowHead, when } from "./dom.js";

const MOST_RUNS = 500;

const named = (name, ...shown) => h.td({ "data-name": name }, shown);

/** Links to what can be done with a run. */
export function linkRun(run, name = "") {
  const link = (path, words, query) =>
    h.a({ href: address(path, { run, ...query }), "aria-label": name ? `${words}: ${name}` : null }, words);
  const [csv, jsonl] = ["csv", "jsonl"].map((format) =>
    link("/v1/run/export", `Export ${format.toUpperCase()}`, { format }));
  return [link("/vote", "Vote blind on its pairs"), " · ", csv, " · ", jsonl];
}

/** The jobs that are not finished. */
export async function showUnfinished() {
  const { jobs } = await ask("/v1/jobs");
  const lines = jobs.filter(({ state }) => ["queued", "running"].includes(state)).map(({ id, kind, state }) =>
    h.li(h.a({ href: `/jobs/${id}` }, capitalize(kind)), " ", quiet(state)));
  return lines.length ? h.section(h.h2("Not finished"), h.ul({ class: "listed" }, lines)) : "";
}

export async function showRuns(main, search) {
  const [{ runs }, unfinished] = await Promise.all([ask(address("/v1/runs", { search })), showUnfinished()]);
  const input = h.input({ type: "search", name: "search", value: search });
  function find(event) {
    event.preventDefault();
    location.assign(address("/runs", { search: input.value }));
  }
  const label = h.label("Find a name or a prompt", input);
  const finder = h.form({ class: "finder", onsubmit: find }, label, h.button({ type: "submit" }, "Find"));
  const rows = runs.slice(0, MOST_RUNS).map(({ name, kind, prompt, prompts, updated, judgements, failures }) => {
    const words = prompts > 1 ? `${prompt} (and ${prompts - 1} more)` : prompt;
    const link = h.a({ href: address("/run", { run: name }) }, h.bdi(name));
    return h.tr(
      rowHead(link, " ", quiet(kind)),
      h.td({ class: "quiet", "data-name": prompt ? "Prompt" : null }, h.bdi({ dir: "auto" }, words)),
      named("Last used", when(updated)),
      named("Judged", judgements, failures > 0 && h.span({ class: "tag" }, `${failures} failed`)),
      h.td(judgements > 0 && linkRun(name, name)),
    );
  });
  const more = runs.length - rows.length;
  const none = h.p(search ? "No run like that." : "Nothing was judged yet.");
  const headings = ["Run", "Prompt", "Last used", "Judged", "More"];
  const list = rows.length ? makeTable("stacks", "Runs, the last used first", headings, rows) : none;
  const rest = more > 0 ? h.p({ class: "quiet" }, `And ${more} more: search for them.`) : "";
  put(main, makeTitle("All that was judged"), finder, list, rest, unfinished);
}

export async function showJudges(main) {
  const { models, memory_bytes: memory } = await ask("/v1/models");
  const rows = models.map((model) => {
    const command = model.fetched_bytes > 0 && h.code(`vrt-lite pull ${model.name}`);
    const size = command && quiet(` ${bytes(model.fetched_bytes)}`);
    return h.tr(
      rowHead(h.bdi(model.name), " ", quiet(model.quant)),
      named("Is", model.state),
      named("On disk", bytes(model.disk_bytes)),
      named("Memory", bytes(model.memory_bytes)),
      named("Fits", model.fits ? "yes" : "no"),
      named("Licence", h.bdi(model.licence)),
      h.td(command, size, model.note && h.bdi({ class: "quiet" }, model.note)),
    );
  });
  const lead = h.p({ class: "lead" }, `This machine has ${bytes(memory)} of memory.`);
  const headings = ["Name", "Is", "On disk", "Memory", "Fits", "Licence", "Get it"];
  const table = makeTable("stacks judges", "Judges", headings, rows);
  put(main, makeTitle("Judges"), lead, table);
}

const showJson = (title, data) => h.details(h.summary(title), h.pre({ tabindex: 0 }, JSON.stringify(data, null, 2)));

export async function showApi(main) {
  const { info, paths, components } = await ask("/openapi.json");
  const endpoints = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { description, parameters = [], requestBody, responses }]) => {
      const names = parameters.map(({ name, in: place }) => h.li(h.code(name), `, in the ${place}`));
      const body = requestBody && showJson("Body", requestBody.content);
      const title = h.h2(h.code(`${method.toUpperCase()} ${path}`));
      return h.section(title, h.p(description), h.ul(names), body, showJson("Answer", responses));
    }));
  const schemas = Object.entries(components.schemas).map(([name, schema]) => showJson(name, schema));
  const link = h.a({ href: "/openapi.json" }, "OpenAPI");
  const lead = h.p({ class: "lead" }, `${info.description} For programs: `, link, ".");
  put(main, makeTitle("API"), lead, endpoints, h.section(h.h2("Schemas"), schemas));
}
