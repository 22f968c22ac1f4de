"""A client of `vrt-lite serve` in one file, with nothing but Python: compare two clips, follow it, or get rewards.

python examples/api_client.py a.mp4 b.mp4 --prompt "A fox runs through snow."
python examples/api_client.py take1.mp4 take2.mp4 take3.mp4 --rewards --prompt "A fox runs through snow."
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

# Not through a proxy: the server is on this machine, or near.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Client:
    """A server, by its address. Where a token is needed it is given here, or in VRT_LITE_TOKEN."""

    def __init__(self, address: str = "http://127.0.0.1:8765", token: str = "") -> None:
        self.address = address.rstrip("/")
        self.token = token or os.environ.get("VRT_LITE_TOKEN", "")

    def upload(self, clip: Path) -> str:
        """Send a clip; return the id by which requests name it. A path in a folder that is allowed needs no upload."""
        with clip.open("rb") as file:
            size = {"content-length": str(clip.stat().st_size), "content-type": "application/octet-stream"}
            return json.load(self.send(f"/v1/clips?name={quote(clip.name)}", file, size))["clip"]

    def compare(self, a: str, b: str, prompt: str = "", **more: Any) -> dict[str, Any]:
        """Compare two clips, each a path or an id; return the judgement's JSON. `both_orders=True` judges twice."""
        return self.ask("/v1/compare", {"a": a, "b": b, "prompt": prompt, **more})

    def rewards(self, prompt: str, clips: list[str], **more: Any) -> list[float | None]:
        """Return a scalar for each clip made from a prompt: log odds around their mean; None without a verdict."""
        told = self.ask("/v1/rewards", {"prompt": prompt, "clips": clips, **more})
        return [clip["reward"] for clip in told["rewards"]]

    def follow(self, a: str, b: str, prompt: str = "", **more: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Compare two clips; yield what happens, as (kind, data). The last kind is "end", with the result."""
        body = {"a": a, "b": b, "prompt": prompt, **more}
        kind = ""
        with self.post("/v1/compare", body, accept="text/event-stream") as answer:
            for line in answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post JSON; return the answer."""
        return json.load(self.post(path, body))

    def post(self, path: str, body: dict[str, Any], *, accept: str = "application/json") -> Any:
        """Post JSON; return the open answer."""
        headers = {"content-type": "application/json", "accept": accept}
        return self.send(path, json.dumps(body).encode(), headers)

    def send(self, path: str, data: Any, headers: dict[str, str]) -> Any:
        """Send a request; return the open answer. A busy server is asked again; RuntimeError if it refuses."""
        if self.token:
            headers = {**headers, "authorization": f"Bearer {self.token}"}
        while True:
            try:
                return OPENER.open(urllib.request.Request(self.address + path, data=data, headers=headers))
            except urllib.error.HTTPError as error:
                if error.code == 429:
                    time.sleep(int(error.headers["retry-after"]))
                    if hasattr(data, "seek"):
                        data.seek(0)
                    continue
                told = json.load(error)["error"]
                raise RuntimeError(f"{told['kind']}: {told['message']}") from None


def main() -> None:
    """Send the clips that are named, and print what the server says of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--rewards", action="store_true")
    parser.add_argument("--server", default="http://127.0.0.1:8765")
    given = parser.parse_args()
    if len(given.clips) != 2 and not given.rewards:
        parser.error("two clips are compared; for more there is --rewards")
    client = Client(given.server)
    clips = [client.upload(clip) for clip in given.clips]
    if given.rewards:
        for clip, reward in zip(given.clips, client.rewards(given.prompt, clips), strict=True):
            print(f"{clip.name}: {'no verdict' if reward is None else f'{reward:+.2f}'}")
        return
    for kind, told in client.follow(clips[0], clips[1], given.prompt):
        if kind == "wrote":
            print(told["text"], end="", flush=True)
        elif kind == "end" and told["state"] == "done":
            print("", *told["result"]["lines"], sep="\n")
        elif kind == "end":
            print(f"\n{told['error']['message'] if told['error'] else told['state']}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, ValueError) as error:  # no such file, no such server, or what it refuses
        sys.exit(f"api_client.py: {error}")
