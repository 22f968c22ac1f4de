// Clips in step: one set of controls for both. The longer one is the clock; the other is held to it.

import { all, clamp, h, one } from "./dom.js";

/** The videos in `box` under one set of controls. In `root` the timelines and the buttons of moments follow them. */
export function startPlayers(box, root) {
  let videos = all("video", box);
  if (!videos.length) return;
  const seconds = (video) => (Number.isFinite(video.duration) ? video.duration : Number(video.dataset.seconds));
  const fps = Math.max(...videos.map((video) => Number(video.dataset.fps) || 1));
  const length = () => seconds(lead);
  let [lead, playing, rate] = [videos[0], false, 1];

  const button = (label, onclick, name, kind) =>
    h.button({ type: "button", class: kind, "aria-label": name, onclick }, label);
  const toggle = () => (playing ? stop() : start());
  const play = button("Play", toggle, null, "play");
  const bar = h.input({ type: "range", min: 0, step: 1 / fps, value: 0, "aria-label": "Moment in both clips" });
  const clock = h.output({ "aria-live": "off" });
  const speeds = [0.1, 0.25, 0.5, 1, 2].map((value) => h.option({ value, selected: value === 1 }, `${value}×`));
  const speed = h.select(speeds);
  const loop = h.input({ type: "checkbox", checked: true });
  const back = button("−1 frame", () => step(-1), "−1 frame, back");
  const next = button("+1 frame", () => step(1), "+1 frame, on");
  const choices = [h.label("Speed", speed), h.label("Loop", loop)];
  const controls = h.div({ class: "controls" }, play, back, next, bar, clock, choices);
  const hints = [h.kbd("k"), " play, ", h.kbd(","), " ", h.kbd("."), " a frame back and on, ", h.kbd("l"), " loop"];
  const keys = h.p({ class: "keys quiet" }, hints, ", while the focus is here");

  function choose() {
    if (!videos.length) return;
    lead = videos.reduce((a, b) => (seconds(b) > seconds(a) ? b : a));
    bar.max = String(length());
    show();
  }
  function show() {
    const shown = lead.currentTime;
    bar.value = String(shown);
    bar.setAttribute("aria-valuetext", `${shown.toFixed(2)} of ${length().toFixed(2)} seconds`);
    clock.value = `${shown.toFixed(2)} / ${length().toFixed(2)} s`;
    root.classList.toggle("moving", shown > 0 || playing);
    for (const video of videos) {
      const x = `${(100 * Math.min(shown / seconds(video), 1)).toFixed(2)}%`;
      const heads = all(`.moments[data-video="${video.dataset.video}"] .head`, root);
      for (const line of heads) for (const end of ["x1", "x2"]) line.setAttribute(end, x);
    }
  }
  // A millisecond into the frame: a time on the edge of two may show either.
  function seek(to) {
    for (const video of videos) video.currentTime = clamp(to + 0.001, 0, seconds(video));
    show();
  }
  function step(frames) {
    stop();
    seek(clamp((Math.floor(lead.currentTime * fps + 0.01) + frames) / fps, 0, length() - 1 / fps));
  }
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
    const first = lead.currentTime;
    try {
      await Promise.all(videos.filter((video) => first < seconds(video)).map((video) => {
        video.playbackRate = rate;
        return video.play();
      }));
      requestAnimationFrame(follow);
    } catch {
      stop();
    }
  }
  function follow() {
    if (!playing || !box.isConnected) return;
    for (const video of videos.filter((other) => other !== lead)) {
      const drift = video.currentTime - lead.currentTime;
      if (lead.currentTime >= seconds(video)) video.pause();
      else if (Math.abs(drift) > 0.25) video.currentTime = lead.currentTime;
      else video.playbackRate = Math.abs(drift) < 0.5 / fps ? rate : rate * (1 - clamp(2 * drift, -0.2, 0.2));
    }
    show();
    requestAnimationFrame(follow);
  }
  function lose(video) {
    const why = " cannot be played: it is not where it was when this page was made";
    const name = one(".file", video.parentElement).cloneNode(true);
    const line = h.p({ class: "absent", role: "status" }, name, `${why}, or this browser does not know its format.`);
    video.replaceWith(line);
    videos = videos.filter((other) => other !== video);
    if (videos.length) choose();
    else for (const part of [controls, keys]) part.remove();
  }
  function press(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !videos.length) return;
    const anywhere = { ",": () => step(-1), ".": () => step(1), k: toggle, l: () => (loop.checked = !loop.checked) };
    const jumps = { " ": toggle, Home: () => seek(0), End: () => step(1e9) };
    const outside = { ...jumps, ArrowLeft: anywhere[","], ArrowRight: anywhere["."] };
    const act = anywhere[event.key] ?? (event.target.closest("button, select, input") ? null : outside[event.key]);
    if (!act) return;
    event.preventDefault();
    act();
  }

  function end(video) {
    if (video !== lead || !playing) return;
    if (!loop.checked) return stop();
    seek(0);
    start();
  }

  for (const video of videos) {
    video.controls = false;
    video.muted = true;
    const own = { error: () => lose(video), ended: () => end(video) };
    const on = { ...own, loadedmetadata: choose, seeked: show, click: toggle };
    for (const [kind, act] of Object.entries(on)) video.addEventListener(kind, act);
  }
  bar.addEventListener("input", () => {
    const to = Number(bar.value);
    stop();
    seek(to);
  });
  speed.addEventListener("change", () => {
    rate = Number(speed.value);
    for (const video of videos) video.playbackRate = rate;
  });
  box.tabIndex = 0;
  box.addEventListener("keydown", press);
  box.append(controls, keys);
  for (const mark of all("[data-seek]", root)) {
    const go = () => {
      if (!videos.length) return;
      stop();
      seek(Number(mark.dataset.seek));
      box.scrollIntoView({ block: "nearest" });
    };
    mark.replaceWith(button(mark.textContent, go, `Show both clips at ${mark.textContent}`, "moment"));
  }
  choose();
  for (const video of [...videos]) if (video.error) lose(video);
}

/** Both clips side by side: `screens` are what shows each one, and what is said of it. */
export function makeScreens(screens) {
  const figures = screens.map(([shown, ...caption]) => h.figure(shown, h.figcaption(caption)));
  const own = { class: "players", role: "group", "aria-label": "Both clips, played in step" };
  return h.div(own, h.div({ class: "screens" }, figures));
}

/** A video without sound that is not fetched before it is needed. */
export function makeVideo(video, source, name, { poster, seconds = 1, fps = 24, width, height } = {}) {
  const data = { "data-seconds": seconds, "data-fps": fps, "data-video": video };
  const own = { src: source, poster, width, height, "aria-label": name, ...data };
  return h.video({ ...own, controls: true, muted: true, playsinline: true, preload: "metadata" });
}

/** A picture of a clip that plays the clip while the pointer is on it. */
export function makeThumbnail(picture, source, name) {
  const image = picture ? h.img({ src: picture, alt: `Middle of ${name}` }) : "";
  const leave = () => one("video", box)?.remove();
  const enter = () => {
    leave();
    const video = h.video({ src: source, loop: true, playsinline: true, "aria-label": name, onerror: leave });
    video.muted = true;
    box.append(video);
    video.play().catch(() => {});
  };
  const box = h.span(source ? { class: "hover", onpointerenter: enter, onpointerleave: leave } : {}, image);
  return box;
}
