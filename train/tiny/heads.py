"""Fits the heads on the scenes to train on, and all that makes odds of them on held-back scenes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import lightgbm
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from train.tiny.drawn_pairs import DrawnPair, Vectors, draw_pairs, keys_of, labels
from train.tiny.fault_kinds import FAULTS
from train.tiny.fit_networks import fit_clips, fit_pairs
from train.tiny.making import Specimen
from vrt_lite.disk import write_file
from vrt_lite.measures.preference import describe_pairs, load_heads
from vrt_lite.measures.trees import softmax
from vrt_lite.protocol.report import MEASURED_KEYS

NAMES: Final = tuple(sorted({fault.name for fault in FAULTS.values()}))


class Growth(NamedTuple):
    """How a forest grows: trees of a class, leaves of a tree, learning rate, and L2 penalty on a leaf's answer."""

    rounds: int
    leaves: int
    rate: float
    penalty: float


_OVERALL: Final = Growth(700, 31, 0.15, 5.0)
_DIMENSION: Final = Growth(500, 20, 0.15, 5.0)
_OVERALL_FAULTS: Final = Growth(1500, 24, 0.05, 20.0)
_DIMENSION_FAULTS: Final = Growth(1000, 24, 0.05, 20.0)
_NAMING: Final = Growth(100, 10, 0.15, 5.0)
_STRENGTH: Final = Growth(80, 16, 0.05, 2.0)
_SAME_LOOK: Final = 0.75
_SHARES: Final = (0.4, 0.1, 0.4)
"""Of the networks in rating faults, by key: those that fit held-back scenes best. Of motion trees know more."""
_COMMON: Final[dict[str, Any]] = {
    "feature_fraction": 0.3,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "max_bin": 127,
    "min_data_in_leaf": 40,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 7,
    "verbosity": -1,
}
_COPIES: Final = 3
"""How often each pair of one scene, and each clip, is learned once more with another harmless difference."""
_REPEATING: Final = 0.25
"""The weight of clean clips whose frames repeat by nature: most clips that repeat stutter."""
_PLAIN: Final = 0.6
_WRONG, _WRONG_PLAIN = (1.0, 0.07), (0.06, 0.04)
"""Of held-back pairs with a fault, so many may be wrong at most: (different scenes, one scene), all and plain ones."""
_ALIKE_SHARES: Final = (0.25, 0.25)
"""The shares of pairs without a fault in what the odds are fitted to: (different scenes, one scene).

Users compare many versions of one scene that are alike.
"""
_MOST_LEAD: Final = (None, 2.0)
"""The most that the difference in faults counts: (different scenes, one scene).

A clip of a kind that is new to the heads is often rated wrongly by itself. Beside another version of it that matters
less.
"""
_ALIKE_NAMED: Final = (0.35, 0.2)
"""Of held-back pairs without a fault, so many may have a winner."""
_NAMED_RIGHT: Final = 0.92


def fit(
    specimens: Sequence[Specimen], names: tuple[str, ...], out: Path, *, say: Callable[[str], None] = print
) -> None:
    """Fit all heads and write their file."""
    train = [each for each in specimens if each.part == "train"]
    held = [each for each in specimens if each.part == "held"]
    vectors, pairs = Vectors(train, names), draw_pairs(train)
    arrays: dict[str, NDArray[Any]] = {"measures": np.array(names), "names": np.array(NAMES)}
    of_scene = [pair for pair in pairs if pair.same_scene]
    *varied, copied = vectors.vary(of_scene, _COPIES)
    one, two = (np.concatenate(sides) for sides in zip(vectors.sides(of_scene), varied, strict=True))
    rows, scale = describe_pairs(one, two, names), vectors.fit_scale(of_scene)
    numbers = np.concatenate((np.arange(len(of_scene)), copied))
    better, weights = labels(of_scene)[numbers], np.array([pair.weight for pair in of_scene])[numbers]
    alone, clips = vectors.vary_alone(pairs, _COPIES)
    # The root, so that a light fault counts as more than nothing.
    faults = np.sqrt(
        [[each.strength * (key == "OA" or key in keys_of(each)) for key in MEASURED_KEYS] for each in train]
    )
    counts = np.array([_REPEATING if not each.fault and "repeats" in each.group else 1.0 for each in train])
    flat = rows.reshape(-1, rows.shape[2])
    say(f"{len(rows)} pairs of one scene, {len(alone)} clips")
    for number, key in enumerate(MEASURED_KEYS):
        both = np.stack((better[:, number], np.where(better[:, number] == 1, 2, 0)), axis=1).ravel()
        of_pairs, of_faults = (_OVERALL, _OVERALL_FAULTS) if key == "OA" else (_DIMENSION, _DIMENSION_FAULTS)
        arrays |= _grow(f"{key}.pairs", of_pairs, flat, both, np.repeat(weights, 2), classes=3)
        arrays |= _grow(
            f"{key}.faults", of_faults, alone, faults[clips, number], counts[clips], objective="cross_entropy"
        )
    arrays |= _fit_names(train, pairs, describe_pairs(*vectors.sides(pairs), names))
    networks = {
        "pairs": fit_pairs(scale.compare(one, two), better, weights),
        "faults": fit_clips(scale.place(alone), faults[clips], counts[clips]),
    }
    arrays |= {f"{name}.{part}": array for name, parts in networks.items() for part, array in parts.items()}
    arrays |= {
        "quantiles": scale.quantiles,
        "steps": scale.steps,
        "shares": np.array(_SHARES),
        "same_look": np.array(_SAME_LOOK),
        "weights": np.ones((len(MEASURED_KEYS), 2, 4)),
        "bounds": np.ones((len(MEASURED_KEYS), 2)),
        "sure": np.array(0.6),
    }
    write_file(out, _pack(arrays))
    arrays |= _calibrate(out, held, names)
    write_file(out, _pack(arrays))
    say(f"{out}: {out.stat().st_size / 1e6:.2f} MB")


def _fit_names(train: Sequence[Specimen], pairs: Sequence[DrawnPair], rows: NDArray[np.float32]) -> dict[str, Any]:
    """Fit what names the fault of the second clip, and its strength."""
    chosen = [n for n, p in enumerate(pairs) if p.worse and not train[p.one].fault]
    worse = [train[pairs[n].two] for n in chosen]
    of_worse = rows[chosen, 1]
    weights = np.array([pairs[n].weight for n in chosen])
    kinds = np.array([NAMES.index(FAULTS[each.fault].name) for each in worse])
    strengths = np.array([each.strength for each in worse])
    return {
        **_grow("naming", _NAMING, of_worse, kinds, weights, classes=len(NAMES)),
        **_grow("strength", _STRENGTH, of_worse, strengths, weights, objective="regression"),
    }


def _grow(
    name: str,
    growth: Growth,
    rows: NDArray[np.float32],
    target: NDArray[Any],
    weights: NDArray[Any],
    *,
    objective: str = "multiclass",
    classes: int = 1,
) -> dict[str, NDArray[Any]]:
    """Train one forest, and return its arrays."""
    kind = {"objective": objective, "num_class": classes}
    options = {"num_leaves": growth.leaves, "learning_rate": growth.rate, "lambda_l2": growth.penalty}
    model = lightgbm.train(
        {**_COMMON, **kind, **options}, lightgbm.Dataset(rows, target, weight=weights), growth.rounds
    )
    nodes: list[tuple[int, int, float]] = []
    roots: list[int] = []
    for tree in model.dump_model()["tree_info"]:
        roots.append(len(nodes))
        _append(tree["tree_structure"], nodes)
    feature, right, value = zip(*nodes, strict=True)
    return {
        f"{name}.feature": np.array(feature, np.uint8),
        f"{name}.right": np.array(right, np.uint8),
        f"{name}.value": _round(np.array(value), np.array(right) > 0),
        f"{name}.root": np.array(roots, np.int32),
        f"{name}.classes": np.array(classes, np.int32),
    }


def _round(values: NDArray[np.float64], inner: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Round thresholds down, so that a row goes the same way as in training, and answers, so that the file is small."""
    rounded = values.astype(np.float32)
    too_large = inner & (rounded.astype(np.float64) > values)
    rounded[too_large] = np.nextafter(rounded[too_large], np.float32(-np.inf))
    rounded[~inner] = rounded[~inner].astype(np.float16)
    return rounded


def _append(node: Mapping[str, Any], nodes: list[tuple[int, int, float]]) -> None:
    """Append a tree's nodes, each before its left branch."""
    if "leaf_value" in node:
        nodes.append((0, 0, node["leaf_value"]))
        return
    at = len(nodes)
    nodes.append((0, 0, 0.0))
    _append(node["left_child"], nodes)
    nodes[at] = node["split_feature"], len(nodes) - at, node["threshold"]
    _append(node["right_child"], nodes)


def _calibrate(path: Path, held: Sequence[Specimen], names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Fit what makes odds of the scores, the bounds, and how sure a name must be."""
    load_heads.cache_clear()
    heads, vectors, pairs = load_heads(path), Vectors(held, names), draw_pairs(held, 1)
    same = np.array([vectors.likeness(pair) >= heads.same_look for pair in pairs])
    better = labels(pairs)
    hard = np.array([bool(held[p.two].fault) and FAULTS[held[p.two].fault].hard for p in pairs])
    weights = np.minimum([pair.weight for pair in pairs], 1)
    weights[hard] /= 2  # they are made twice as often
    alike = np.array([not held[p.one].fault and not held[p.two].fault for p in pairs])
    for here, share in zip((~same, same), _ALIKE_SHARES, strict=True):
        weights[here & alike] *= share / (1 - share) * weights[here & ~alike].sum() / weights[here & alike].sum()
    fault = np.array([0.0 if held[p.one].fault else held[p.two].strength for p in pairs])
    fitted = {"weights": np.ones((len(MEASURED_KEYS), 2, 4)), "bounds": np.ones((len(MEASURED_KEYS), 2))}
    one, two = vectors.sides(pairs)
    for scene, here in enumerate((~same, same)):
        terms = heads.terms(one[here], two[here], same_scene=bool(scene))
        for number in range(len(MEASURED_KEYS)):
            right = better[here, number]
            found, odds = _fit_odds(terms[:, number], right, weights[here], _MOST_LEAD[scene])
            fitted["weights"][number, scene] = found
            fitted["bounds"][number, scene] = _fit_bound(odds, right, fault[here], weights[here], scene)
    chosen = [n for n, p in enumerate(pairs) if p.worse and p.same_scene and not held[p.one].fault]
    shares = softmax(heads.naming.scores(describe_pairs(one[chosen], two[chosen], names)[:, 1]))
    right = np.array(
        [NAMES[b] == FAULTS[held[pairs[n].two].fault].name for b, n in zip(shares.argmax(1), chosen, strict=True)]
    )
    top = shares.max(1)
    sure = next((s for s in np.arange(0.3, 0.99, 0.02) if right[top >= s].mean() >= _NAMED_RIGHT), 0.95)
    return {**fitted, "sure": np.array(float(sure))}


def _fit_odds(
    terms: NDArray[np.float64], better: NDArray[Any], weights: NDArray[np.float64], most_lead: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights of the terms with which the right answers are likeliest, and their odds (pairs, 3).

    The logarithm of the odds is linear in them, so there is one best place.
    """
    right = np.eye(3)[better]

    def compute_loss(place: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds = softmax(terms @ place)
        missing = weights[:, None] * (odds - right)
        return -float(weights @ np.log((odds * right).sum(1))), np.einsum("na,nap->p", missing, terms)

    limits = [(0, None), (0, None), (None, None), (0, most_lead)]
    place = minimize(compute_loss, np.array((0.5, 0.5, 0, 1)), jac=True, method="L-BFGS-B", bounds=limits).x
    return place, softmax(terms @ place)


def _fit_bound(
    odds: NDArray[np.float64],
    better: NDArray[Any],
    fault: NDArray[np.float64],
    weights: NDArray[np.float64],
    scene: int,
) -> float:
    """Return the lowest bound at which few winners are wrong, and few pairs without a fault have one."""
    best = odds.argmax(1)
    lead = odds.max(1) / odds[:, 1:].sum(1)
    unequal, plain, alike = better > 0, (better > 0) & (fault >= _PLAIN), (better == 0) & (fault == 0)
    for bound in np.arange(0.5, 0.95, 0.01):
        named = (lead >= bound) & (best > 0)
        wrong = named & (best != better)
        limits = ((wrong, unequal, _WRONG), (wrong, plain, _WRONG_PLAIN), (named, alike, _ALIKE_NAMED))
        if all(weights[where] @ what[where] <= most[scene] * weights[where].sum() for what, where, most in limits):
            return float(bound)
    return 0.95


def _pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return an .npz file; equal arrays give equal bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            inside = io.BytesIO()
            np.lib.format.write_array(inside, np.asarray(arrays[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), inside.getvalue(), zipfile.ZIP_DEFLATED)
    return written.getvalue()
