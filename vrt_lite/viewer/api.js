// Asks the server, and follows its jobs.

import { put } from "./dom.js";

/** Ask the API. Throws an error with a line for the user. */
export async function ask(path, method = "GET", body = undefined) {
  const options = { method };
  if (body instanceof File || body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server cannot be reached: start it again (vrt-lite serve).");
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error?.message ?? `The server answered ${answer.status}.`);
  return told;
}

/** A path with its query; what no address can hold becomes a replacement character. */
export const address = (path, query) => `${path}?${new URLSearchParams(query)}`;

export function tell(place, words) {
  put(place, words);
  place.classList.remove("error");
}

export function complain(place, error) {
  put(place, error.message);
  place.classList.add("error");
}

/** A listener that does what a button or a form asks for, not twice at once; an error is told at `place`. */
export const doing = (place, act) => async (event) => {
  event.preventDefault();
  const button = event.submitter ?? event.currentTarget;
  button.disabled = true;
  await act().catch((error) => complain(place, error));
  button.disabled = false;
};

/** Follow a job. `on` has a function for each kind of event; after a lost connection it goes on where it was. */
export function follow(id, on) {
  const events = new EventSource(`/v1/jobs/${id}/events`);
  for (const [kind, act] of Object.entries(on)) {
    events.addEventListener(kind, (event) => {
      if (kind === "end") events.close();
      act(JSON.parse(event.data));
    });
  }
}
