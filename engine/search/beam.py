"""Batched beam search over slots, in the executor's array namespace (docs/reference.md 6). Knows no model.

The state is arrays with one row per slot, so that a slot moves by copying rows. A step never loops over beams
or hypotheses. Except on numpy, every step has the same shapes and reads no value back, so that a CUDA graph
can capture it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from engine.search import filters, penalties
from engine.search.diverse import Candidates, Groups, diverse, top
from engine.search.executor import LaneNumbers, StepInput, TopK
from engine.search.greedy import greedy
from engine.search.kind import Kind, is_usual, kind_of
from engine.search.state import blank, take
from engine.types import CANDIDATES, DecodeOptions

NEG = -math.inf


class BeamSearch:
    """Beam search, diverse beam search and sampling, mixed freely over the slots of one executor."""

    def __init__(
        self,
        lane: LaneNumbers,
        *,
        readable: bool | None = None,
        upload: Callable[[Sequence[int]], Any] | None = None,
    ) -> None:
        """Make a search over the slots of a lane, all idle.

        lane: sizes and tokens of the lane, and the home of its arrays.
        readable: whether a step may read values back; by default only on the CPU.
        upload: makes an int64 array on the device; by default one that may wait for the device.
        """
        array = lane.namespace.zeros(1)
        # numpy itself follows the array API; a wrapper costs 10 MB, and doubles the cost of each call
        self.xp: Any = np if is_numpy_array(array) else array_namespace(array)
        self.device, self.limits = lane.device, lane.limits
        self.pad, self.eos, self.first = lane.pad, lane.eos, lane.start
        self.beams = lane.beams
        self.columns = lane.limits.target + 2
        self.state = blank(self.xp, lane, self.columns)
        self._upload = upload or partial(self.xp.asarray, dtype=self.xp.int64, device=self.device)
        self._readable = self.xp is np or str(self.device) == "cpu" if readable is None else readable
        # constants of every step
        self._ranks = self._range(2 * self.beams)[None, :]
        self._slots, self._own_rows = self._range(lane.slots), self._range(self.beams)
        self._zeros = self.xp.zeros((lane.slots, self.beams), dtype=self.xp.int64, device=self.device)
        self._padding = self._zeros + self.pad
        self._unbanned = self.xp.stack([self._padding, self._padding], axis=2)
        self._ends, self._pads = self._zeros[:, 0] + self.eos, self._zeros[:, 0] + self.pad
        # host copies of the values that decide shapes and kernels
        self._options = [DecodeOptions()] * lane.slots
        self.taken = np.zeros(lane.slots, np.int64)
        self._shortest = np.zeros(lane.slots, np.int64)
        self._priced = [range(0)] * lane.slots  # steps at which forced tokens keep their log-probability
        self._unusual = set[int]()  # slots with options beyond plain beam search
        self._kinds: dict[int, Kind] = {}

    def start(self, slot: int, options: DecodeOptions, source_length: int) -> None:
        """Start the search of a slot.

        slot: number of the slot.
        options: options of the request, which have passed `check`.
        source_length: tokens of its source, end-of-sentence included.
        """
        state, narrowing = self.state, options.beam_rule == penalties.MARIAN
        shortest, longest = options.lengths(source_length, self.limits)
        # all rows are equal at the first step, so only independent samples and groups need a row each
        first_rows = options.beam_size if options.sampling else options.diverse_groups
        state.total[slot, :] = NEG
        state.total[slot, :first_rows] = 0.0
        state.current[slot, :] = self.first
        state.parents[slot, :] = self._own_rows
        state.plan[slot, :] = -1
        prefix = options.prefix[:longest]
        if prefix:
            state.plan[slot, : len(prefix)] = self._upload(prefix)
        state.plan[slot, longest], state.free[slot] = self.eos, min(options.free_prefix, longest)
        state.history[slot, :, 0] = self.first
        state.kept_count[slot], state.step[slot], state.done[slot] = 0, 0, False
        state.shortest[slot], state.longest[slot] = shortest, longest
        state.counted[slot, :] = self.pad
        if options.quotas:
            tokens, limits = zip(*options.quotas, strict=True)
            state.counted[slot, : len(tokens)] = self._upload(tokens)
            state.quotas[slot, : len(limits)] = self._upload(limits)
        state.words[slot], state.attended[slot, :, :] = source_length - 1, 0.0
        state.overlap[slot, :, :] = 0.0
        state.write_numbers(slot, options)
        self._shortest[slot] = shortest
        self._priced[slot] = range(options.free_prefix, longest if narrowing else self.columns)
        self.start_on_host((slot,), (options,))

    def start_on_host(self, slots: Sequence[int], options: Sequence[DecodeOptions]) -> None:
        """Do the host's part of `start` for several slots."""
        for slot, slot_options in zip(slots, options, strict=True):
            self.taken[slot] = 0
            if self._options[slot] is not slot_options:
                self._set_options(slot, slot_options)

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""
        self.state.move(source, target)
        self.move_on_host(source, target)

    def move_on_host(self, source: int, target: int) -> None:
        """Do the host's part of `move`."""
        self.taken[target] = self.taken[source]
        self._shortest[target], self._priced[target] = self._shortest[source], self._priced[source]
        self._set_options(target, self._options[source])

    def _set_options(self, slot: int, options: DecodeOptions) -> None:
        """Set the options of a slot on the host, and drop the kinds of steps that depend on them."""
        self._options[slot] = options
        was_unusual, is_unusual = slot in self._unusual, self._readable or not is_usual(options)
        (self._unusual.add if is_unusual else self._unusual.discard)(slot)
        if was_unusual or is_unusual:
            self._kinds.clear()

    def kind(self, n: int) -> Kind:
        """Return the kind of the next step of slots 0..n-1."""
        if n not in self._kinds:
            options = self._options[:n]
            self._kinds[n] = kind_of(options, self.beams, self.columns, readable=self._readable)
        kind = self._kinds[n]
        if self._readable and kind.histories:
            return kind._replace(columns=min(self.columns, self.most_steps(n) + 2))
        return kind

    def most_steps(self, n: int) -> int:
        """Return the largest number of steps that one of slots 0..n-1 has taken."""
        return int(np.maximum.reduce(self.taken[:n]))

    def inputs(self, n: int, kind: Kind | None = None) -> StepInput:
        """Return the inputs of the next step of slots 0..n-1: views of the state, valid until `advance`.

        kind: kind of the step; by default the one that the slots need.
        """
        xp, state, kind = self.xp, self.state, kind or self.kind(n)
        step, zeros = state.step[:n], self._zeros[:n, :]
        forced = state.plan[self._slots[:n], step]
        if self._readable and bool((self.taken[:n] >= self._shortest[:n]).all()):
            banned = self._unbanned[:n, :, :]
        else:  # end-of-sentence while a hypothesis is too short
            banned = xp.where(step < state.shortest[:n], self._ends[:n], self._pads[:n])
            # pad is always banned
            banned = xp.stack([self._padding[:n, :], zeros + banned[:, None]], axis=2)
        if kind.quotas:
            history = state.history[:n, :, : kind.columns]
            tokens, limits = state.counted[:n, : kind.quotas], state.quotas[:n, : kind.quotas]
            exhausted = filters.exhausted(xp, history, step, tokens, limits, pad=self.pad)
            banned = xp.concat([banned, exhausted], axis=2)
        if kind.ngram:
            history, size = state.history[:n, :, : kind.columns], state.ngram[:n]
            repeated = filters.repeats(xp, history, step, size, largest=kind.ngram, pad=self.pad)
            banned = xp.concat([banned, repeated], axis=2)
        if self._readable and kind.histories:
            banned = filters.tighten(xp, banned, self.pad)
        return self.step_input(n, zeros + forced[:, None], banned, kind)

    def step_input(self, n: int, forced: Any, banned: Any, kind: Kind) -> StepInput:
        """Return the inputs of the next step of slots 0..n-1, as views like those of `inputs`.

        n: number of active slots.
        forced: see StepInput.
        banned: see StepInput.
        kind: kind of the step.
        """
        state, k = self.state, 2 * self.beams
        return StepInput(
            tokens=state.current[:n, :],
            positions=state.step[:n, None],
            parents=state.parents[:n, :],
            forced=forced,
            banned=banned,
            temperature=state.temperature[:n],
            unk_penalty=state.unk_penalty[:n],
            # a reward per word ranks candidates as a penalty of the end does
            eos_penalty=state.word_reward[:n],
            lm_weight=state.lm_weight[:n],
            k=max(k, CANDIDATES) if kind.sampled else k,
        )

    def advance(self, topk: TopK, n: int) -> Any:
        """Update the search by a step's candidates. Return bool [n]: whether each slot is done.

        A done slot may be advanced further: its finished hypotheses do not change.
        """
        done = self.absorb(topk, n, self.kind(n))
        self.advance_on_host(n)
        return done

    def advance_on_host(self, n: int, steps: int = 1) -> None:
        """Do the host's part of `advance`: count steps of slots 0..n-1."""
        self.taken[:n] += steps

    def idle(self, count: Any, n: int) -> None:
        """Mark slots count..n-1 idle: done, and at step 0.

        count: int64 [1] on the device, number of active slots.
        n: number of slots of the step.
        """
        state, busy = self.state, self._range(n) < count
        state.done[:n] = state.done[:n] | ~busy
        state.step[:n] = state.step[:n] * self.xp.astype(busy, self.xp.int64)

    def absorb(self, topk: TopK, n: int, kind: Kind) -> Any:
        """Do the device's part of `advance`. Reads no value back unless the search is `readable`.

        topk: candidates of the step.
        n: number of active slots.
        kind: kind of the step.
        """
        xp, state = self.xp, self.state
        topk = self._zero_free_tokens(topk, n) if kind.free else topk
        if kind.greedy:
            greedy(xp, self.state, topk, n, (self._slots[:n], self.eos), histories=kind.histories)
            return state.done[:n]
        attended = self._attention_totals(topk, n) if kind.coverage else None
        missing = None if attended is None else penalties.log_coverage(xp, attended, state.words[:n])
        candidates = self._candidates(topk, n, kind, missing)
        ends = (candidates.tokens == self.eos) & (candidates.scores > NEG)
        if kind.simple and not bool(xp.any(ends)):
            survivors = Candidates(*(part[:, : self.beams] for part in candidates))
        else:
            survivors = self._collect_finished(candidates, ends, missing, n)
        self._continue(survivors, n, kind)
        if attended is not None:
            followed = take(self._slots[:n, None], attended, state.parents[:n, :])
            state.attended[:n, :, : attended.shape[2]] = followed
        step, done = state.step[:n], state.done[:n]
        done = done | (step >= state.longest[:n]) | (state.kept_count[:n] >= state.width[:n])
        state.done[:n] = done
        state.step[:n] = step + xp.astype(~done, xp.int64)
        return state.done[:n]

    def _candidates(self, topk: TopK, n: int, kind: Kind, missing: Any) -> Candidates:
        """Return the candidates of beam search, diverse groups or samples, by the options of each slot."""
        candidates: Candidates | None = None
        if kind.ranked:
            candidates = self._rank(topk, n, missing if kind.stepwise else None)
        if kind.groups > 1:
            grouped = self._diverse(topk, n, kind.groups)
            candidates = self._merge(self.state.groups[:n] > 1, grouped, candidates)
        if kind.sampled:
            candidates = self._merge(self.state.sampling[:n], self._draw(topk, n), candidates)
        assert candidates is not None
        return candidates

    def _zero_free_tokens(self, topk: TopK, n: int) -> TopK:
        """Give log-probability 0 to the first `free_prefix` tokens, and to the end at Marian's limit."""
        # whether the forced token of each slot's next step keeps its log-probability
        priced = (step in steps for step, steps in zip(self.taken[:n].tolist(), self._priced, strict=False))
        if self._readable and all(priced):
            return topk
        xp, state, first = self.xp, self.state, self._range(topk.scores.shape[2]) == 0
        step, cuts = state.step[:n], state.narrowing[:n]
        free = (step < state.free[:n]) | (cuts & (step >= state.longest[:n]))
        scores = xp.where(first, xp.zeros_like(topk.scores), xp.full_like(topk.scores, NEG))
        return topk._replace(scores=xp.where(free[:, None, None], scores, topk.scores))

    def _merge(self, where: Any, new: Candidates, old: Candidates | None) -> Candidates:
        """Return the new candidates of slots where `where`, bool [n], is true, otherwise the old ones."""
        if old is None:
            return new
        return Candidates(*(self.xp.where(where[:, None], a, b) for a, b in zip(new, old, strict=True)))

    def _rank(self, topk: TopK, n: int, missing: Any) -> Candidates:
        """Return the 2B best candidates of all rows; 2B of each row are provably enough.

        All candidates of a step have one length, so a stepwise penalty only adds the coverage.
        """
        xp, state, slots = self.xp, self.state, self._slots[:n, None]
        scores, ids = self._rows(topk, n)
        totals = self._finite(state.total[:n, :, None] + scores)
        if missing is None:
            return top(xp, slots, totals, ids, 2 * self.beams)
        weight = xp.where(state.stepwise[:n], state.coverage[:n], 0.0)
        scale = penalties.normaliser(xp, state.step[:n] + 1, state.exponent[:n], state.wu[:n])
        handicap = missing * (weight * scale)[:, None]
        return top(xp, slots, totals, ids, 2 * self.beams, self._finite(totals + handicap[:, :, None]))

    def _diverse(self, topk: TopK, n: int, largest: int) -> Candidates:
        """Return the candidates of diverse groups: each group avoids the tokens of the earlier ones."""
        state = self.state
        scores, ids = self._rows(topk, n)
        overlap = state.overlap[:n, :, :]
        groups = Groups(state.groups[:n], state.width[:n], state.strength[:n], state.discount[:n], overlap)
        total = state.total[:n, :]
        best, state.overlap[:n, :, :] = diverse(self.xp, total, scores, ids, groups, largest)
        return best

    def _draw(self, topk: TopK, n: int) -> Candidates:
        """Return one drawn candidate for each row, at the row's index; the other B candidates are -inf."""
        xp, state = self.xp, self.state
        scores, ids = topk.scores, topk.ids  # top_k never exceeds CANDIDATES, however long the rows
        beam = self._range(self.beams)[None, :]
        uniforms = filters.uniform(xp, state.seed[:n, None], beam, state.step[:n, None])
        index = filters.draw(xp, scores, state.top_k[:n], state.top_p[:n], uniforms)[:, :, None]
        picked = xp.take_along_axis(scores, index, axis=2)[:, :, 0]
        total = self._finite(state.total[:n, :] + picked)
        tokens = xp.take_along_axis(ids, index, axis=2)[:, :, 0]
        pads = xp.full_like(tokens, self.pad)
        return Candidates(
            xp.concat([total, xp.full_like(total, NEG)], axis=1),
            xp.concat([tokens, pads], axis=1),
            xp.concat([xp.zeros_like(tokens) + beam, xp.zeros_like(pads)], axis=1),
        )

    def _rows(self, topk: TopK, n: int) -> tuple[Any, Any]:
        """Return scores and tokens of each row's 2B best; there are more if a slot of the batch samples."""
        return topk.scores[:, :, : 2 * self.beams], topk.ids[:, :, : 2 * self.beams]

    def _attention_totals(self, topk: TopK, n: int) -> Any:
        """Return the attention that each source position has received up to this step, [n, B, S]."""
        totals = self.state.attended
        width = min(totals.shape[2], topk.attention.shape[2])  # padding follows the longest source
        return totals[:n, :, :width] + topk.attention[:, :, :width]

    def _collect_finished(self, candidates: Candidates, ends: Any, missing: Any, n: int) -> Candidates:
        """Store finished hypotheses. Return the candidates [n, B] with which the rows continue.

        An end of sentence counts only among the first `width` candidates (docs/reference.md 6, item 6).
        Diverse groups and Marian have no spare candidates, so each finished hypothesis narrows the beam.
        """
        xp, state, slots = self.xp, self.state, self._slots[:n, None]
        diverse, narrowing = state.groups[:n] > 1, state.narrowing[:n]
        room = state.width[:n] - xp.where(diverse | narrowing, state.kept_count[:n], 0)
        counts = (ends & (self._ranks < room[:, None]) & ~state.done[:n, None])[:, : self.beams]
        if not self._readable or bool(xp.any(counts)):
            self._add_to_pool(candidates, counts, missing, n)
        ends = ends | (narrowing[:, None] & (self._ranks >= room[:, None]))
        order = self._order(ends, room, diverse, n)
        scores, tokens, parents = (take(slots, part, order) for part in candidates)
        ended = take(slots, ends & ~diverse[:, None], order)
        continues = (self._ranks[:, : self.beams] < state.width[:n, None]) & ~ended
        return Candidates(xp.where(continues, scores, NEG), tokens, parents)

    def _add_to_pool(self, candidates: Candidates, counts: Any, missing: Any, n: int) -> None:
        """Copy finished hypotheses into the pool in candidate order, while it holds fewer than `width`."""
        xp, state, slots = self.xp, self.state, self._slots[:n, None]
        place = state.kept_count[:n, None] + xp.cumulative_sum(xp.astype(counts, xp.int64), axis=1) - 1
        counts = counts & (place < state.width[:n, None])
        free = self._ranks[:, : self.beams, None]
        match = counts[:, None, :] & (place[:, None, :] == free)  # [n, place in the pool, rank]
        hit = xp.any(match, axis=2)
        pick = xp.argmax(xp.astype(match, xp.int8), axis=2)
        parents = take(slots, candidates.parents, pick)
        new = [
            (state.kept_scores, take(slots, candidates.scores, pick)),
            (state.kept_trail, parents),
            (state.kept_steps, state.step[:n, None]),
        ]
        if missing is not None:
            new.append((state.kept_coverage, take(slots, missing, parents)))
        for pool, values in new:
            pool[:n, :] = xp.where(hit, values, pool[:n, :])
        state.kept_count[:n] = state.kept_count[:n] + xp.sum(xp.astype(counts, xp.int64), axis=1)

    def _order(self, ends: Any, room: Any, diverse: Any, n: int) -> Any:
        """Return the candidate that each row continues: the first `width` that do not end; a sample keeps
        its row. Diverse groups keep ended candidates in the places they lost, as fairseq main does, though
        nothing at their rank counts any more."""
        xp, state, width = self.xp, self.state, self.state.width[:n, None]
        passed = xp.astype(ends | (self._ranks >= 2 * width), xp.int8)
        lost = xp.astype(ends | (self._ranks >= room[:, None]), xp.int8)
        lost = xp.where(self._ranks < width, lost, xp.full_like(lost, 2))
        passed = xp.where(diverse[:, None], lost, passed)
        order = xp.argsort(passed, axis=1, stable=True)[:, : self.beams]
        return xp.where(state.sampling[:n, None], self._ranks[:, : self.beams], order)

    def _continue(self, survivors: Candidates, n: int, kind: Kind) -> None:
        """Continue the rows with `survivors` [n, B]: write the next column, and the next step's inputs."""
        state, slots = self.state, self._slots[:n]
        column = state.step[:n] + 1
        state.tokens[slots, column] = survivors.tokens
        state.scores[slots, column] = survivors.scores
        state.trail[slots, column] = survivors.parents
        if kind.histories:
            state.history[:n, ...] = take(slots[:, None], state.history[:n, ...], survivors.parents)
            state.history[slots, :, column] = survivors.tokens
        state.total[:n, :], state.current[:n, :], state.parents[:n, :] = survivors

    def _finite(self, scores: Any) -> Any:
        return self.xp.where(scores == scores, scores, NEG)  # NaN, which differs from itself, never wins

    def _range(self, stop: int) -> Any:
        return self.xp.arange(stop, dtype=self.xp.int64, device=self.device)
