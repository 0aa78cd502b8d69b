"""Batched beam search over slots, in the executor's array namespace (REFERENCE.md 6). Knows no model.

The whole state is data: one array per fact, one leading row per slot, so that a slot moves by copying rows.
Nothing loops over beams or hypotheses in a step. Elsewhere than on numpy every step has the same shapes and
never reads a value back, so that a graph may capture it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace, to_device

from engine import filters, penalties
from engine.diverse import Candidates, Groups, diverse, top
from engine.executor import Executor, StepInput, TopK
from engine.slots import blank, take
from engine.types import CANDIDATES, DecodeOptions, Hypothesis

NEG = -math.inf
HUGE = 1e30  # options beyond are clipped: float32 arithmetic on them must stay finite


class BeamSearch:
    """Beam search, diverse beam search and sampling, mixed freely over the slots of one executor.

    Only the executor's numbers are read here (slots, beams, limits, pad, eos, namespace, device).
    """

    def __init__(self, executor: Executor, *, tight: bool | None = None) -> None:
        """tight: whether a step may read values back; by default only on the CPU."""
        self.xp = array_namespace(executor.namespace.zeros(1))
        self.device, self.limits = executor.device, executor.limits
        self.pad, self.eos, self.first = executor.pad, executor.eos, executor.start
        self.beams = executor.beams
        self.columns = executor.limits.target + 2
        self.state = blank(self.xp, executor, self.columns)
        # where values are at hand, shapes may follow them
        self._tight = is_numpy_namespace(self.xp) or str(self.device) == "cpu" if tight is None else tight
        self._ranks = self._range(2 * self.beams)[None, :]
        # the host's own copy of what decides shapes and kernels
        self._options = [DecodeOptions()] * executor.slots
        self._steps = [0] * executor.slots

    def start(self, slot: int, options: DecodeOptions, source_length: int) -> None:
        """Begin a hypothesis in a slot. The options have passed `check`; source_length counts its end."""
        state, width, groups = self.state, options.beam_size, options.diverse_groups
        shortest, longest = options.lengths(source_length, self.limits)
        # rows are equal at the first step: independent samples and groups start from a row each
        starts = width if options.sampling else groups
        state.total[slot, :] = NEG
        state.total[slot, :starts] = 0.0
        state.current[slot, :] = self.first
        state.parents[slot, :] = self._range(self.beams)
        state.plan[slot, :] = -1
        prefix = options.prefix[:longest]
        if prefix:
            state.plan[slot, : len(prefix)] = self.xp.asarray(prefix, dtype=self.xp.int64, device=self.device)
        state.plan[slot, longest] = self.eos
        state.kept_count[slot], state.step[slot], state.done[slot] = 0, 0, False
        state.width[slot], state.shortest[slot], state.longest[slot] = width, shortest, longest
        state.ngram[slot], state.groups[slot] = options.no_repeat_ngram_size, groups
        state.strength[slot] = min(options.diverse_strength, HUGE)
        state.discount[slot], state.overlap[slot, :, :] = options.diverse_discount, 0.0
        state.temperature[slot] = min(max(options.temperature, 1 / HUGE), HUGE)
        penalty = options.unk_penalty
        state.unk_penalty[slot] = penalty if penalty == math.inf else min(max(penalty, -HUGE), HUGE)
        narrowing = options.beam_rule == penalties.MARIAN
        state.narrowing[slot] = narrowing
        # words compete by it at each step; Marian's counts in the end only
        state.word_reward[slot] = 0.0 if narrowing else min(max(options.word_reward, -HUGE), HUGE)
        state.exponent[slot] = min(max(penalties.exponent(options), -HUGE), HUGE)
        state.wu[slot] = options.length_normalization == penalties.WU
        state.coverage[slot] = min(options.coverage_penalty, HUGE)
        state.stepwise[slot], state.words[slot] = options.stepwise_penalty, source_length - 1
        state.attended[slot, :, :] = 0.0
        state.sampling[slot], state.seed[slot] = options.sampling, options.seed
        state.top_k[slot] = options.top_k or CANDIDATES
        state.top_p[slot] = options.top_p if options.top_p < 1 else math.inf  # no cut by a rounding error
        self._options[slot], self._steps[slot] = options, 0

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""
        self.state.move(source, target)
        self._options[target], self._steps[target] = self._options[source], self._steps[source]

    def inputs(self, n: int) -> StepInput:
        """What the next step needs for slots 0..n-1. Views of the state: use them before `advance`."""
        xp, state, options = self.xp, self.state, self._options[:n]
        step = state.step[:n]
        forced = take(xp, state.plan[:n, :], step[:, None])
        everywhere = xp.zeros((n, self.beams), dtype=xp.int64, device=self.device)
        banned = everywhere[:, :, None] + self._minimum(n)[:, None, None]
        largest = max(o.no_repeat_ngram_size for o in options)
        if largest:
            history = state.tokens[:n, :, : self._columns(n)]
            size = state.ngram[:n]
            found = filters.repeats(xp, history, step, size, largest=largest, pad=self.pad)
            banned = xp.concat([banned, found], axis=2)
            banned = filters.tighten(xp, banned, self.pad) if self._tight else banned
        k = 2 * self.beams
        return StepInput(
            tokens=state.current[:n, :],
            positions=step[:, None],
            parents=state.parents[:n, :],
            forced=everywhere + forced,
            banned=banned,
            temperature=state.temperature[:n],
            unk_penalty=state.unk_penalty[:n],
            eos_penalty=state.word_reward[:n],  # words compete by it; what it adds up to counts in the end
            k=max(k, CANDIDATES) if any(o.sampling for o in options) else k,
        )

    def advance(self, topk: TopK, n: int) -> Any:
        """Take in one step's candidates; returns bool [n]: the slots that are done.

        A done slot may be advanced again: its finished hypotheses stay as they are.
        """
        xp, state = self.xp, self.state
        attended = self._attended(topk, n) if any(o.coverage_penalty for o in self._options[:n]) else None
        missing = None if attended is None else penalties.uncovered(xp, attended, state.words[:n])
        found = self._candidates(topk, n, missing)
        live = ~state.done[:n]
        ends = (found.tokens == self.eos) & (found.scores > NEG)
        # an end of sentence counts only among the first `width` candidates (REFERENCE.md 6 item 6); diverse
        # groups and Marian have no candidates to spare, so each finished hypothesis takes the last place away
        diverse, narrowing = state.groups[:n] > 1, state.narrowing[:n]
        room = state.width[:n] - xp.where(diverse | narrowing, state.kept_count[:n], 0)
        counts = ends & (self._ranks < room[:, None]) & live[:, None]
        if not self._tight or bool(xp.any(counts)):
            self._keep(found, counts, missing, n)
        ends = ends | (narrowing[:, None] & (self._ranks >= room[:, None]))
        self._continue(found, self._order(ends, room, diverse, n), ends & ~diverse[:, None], n)
        if attended is not None:
            followed = take(xp, attended, state.parents[:n, :])
            state.attended[:n, :, : attended.shape[2]] = followed
        last = state.step[:n] >= state.longest[:n]
        state.done[:n] = state.done[:n] | last | (state.kept_count[:n] >= state.width[:n])
        state.step[:n] = state.step[:n] + xp.astype(live & ~state.done[:n], xp.int64)
        for slot in range(n):
            self._steps[slot] += 1
        return state.done[:n]

    def best(self, slot: int, attention: Sequence[Any] | None = None) -> list[Hypothesis]:
        """The n_best finished hypotheses of a slot, best first; maybe none.

        attention: a host array [B, S] of each step so far; each hypothesis gets its rows by its trail.
        """
        options, state = self._options[slot], self.state
        count, longest = int(state.kept_count[slot]), int(state.longest[slot])
        steps, uncovered = (self._host(x[slot, :count]) for x in (state.kept_steps, state.kept_coverage))
        columns = int(steps.max(initial=0)) + 2
        tokens, scores, trail = (
            self._host(pool[slot, :count, :columns])
            for pool in (state.kept_tokens, state.kept_scores, state.kept_trail)
        )
        found = []
        for row, step in enumerate(steps.tolist()):
            cumulative = scores[row, : step + 2].astype(np.float64)
            cumulative[-1] += float(state.word_reward[slot])  # the price of ending was for the race only
            rows = None
            if attention is not None:
                picks = trail[row, 1 : step + 2].tolist()
                rows = np.stack([attention[at][pick] for at, pick in enumerate(picks)])
            found.append(
                Hypothesis(
                    tokens=tokens[row, 1 : step + 1].tolist(),
                    score=penalties.score(cumulative[-1], step + 1, options, float(uncovered[row])),
                    token_scores=np.diff(cumulative).tolist(),
                    finish="length" if step == longest else "stop",
                    attention=rows,
                )
            )
        return sorted(found, key=lambda h: -h.score)[: options.n_best]

    def _candidates(self, topk: TopK, n: int, missing: Any) -> Candidates:
        """Beam search, diverse groups or samples, as each slot asks; only what some slot asks is computed."""
        options = self._options[:n]
        found: Candidates | None = None
        if not all(o.sampling for o in options):
            found = self._ranked(topk, n, missing)
        if any(o.diverse_groups > 1 for o in options):
            diverse = self._diverse(topk, n, max(o.diverse_groups for o in options))
            found = self._merge(self.state.groups[:n] > 1, diverse, found)
        if any(o.sampling for o in options):
            found = self._merge(self.state.sampling[:n], self._drawn(topk, n), found)
        assert found is not None
        return found

    def _merge(self, chosen: Any, new: Candidates, old: Candidates | None) -> Candidates:
        if old is None:
            return new
        return Candidates(*(self.xp.where(chosen[:, None], a, b) for a, b in zip(new, old, strict=True)))

    def _ranked(self, topk: TopK, n: int, missing: Any) -> Candidates:
        """The first 2B of all rows' best (a row's own 2B best are provably enough).

        All candidates of a step have one length: of a stepwise penalty only the coverage tells them apart.
        """
        xp, state = self.xp, self.state
        scores, ids = self._rows(topk, n)
        totals = self._finite(state.total[:n, :, None] + scores)
        if missing is None or not any(o.stepwise_penalty for o in self._options[:n]):
            return top(xp, totals, ids, 2 * self.beams)
        weight = xp.where(state.stepwise[:n], state.coverage[:n], 0.0)
        scale = penalties.normaliser(xp, state.step[:n] + 1, state.exponent[:n], state.wu[:n])
        handicap = missing * (weight * scale)[:, None]
        return top(xp, totals, ids, 2 * self.beams, self._finite(totals + handicap[:, :, None]))

    def _diverse(self, topk: TopK, n: int, largest: int) -> Candidates:
        """Group after group, each penalising the tokens of the earlier ones."""
        state = self.state
        scores, ids = self._rows(topk, n)
        overlap = state.overlap[:n, :, :]
        groups = Groups(state.groups[:n], state.width[:n], state.strength[:n], state.discount[:n], overlap)
        found, state.overlap[:n, :, :] = diverse(self.xp, state.total[:n, :], scores, ids, groups, largest)
        return found

    def _drawn(self, topk: TopK, n: int) -> Candidates:
        """One draw for each row, in the place of its row; the other B places can't be taken."""
        xp, state = self.xp, self.state
        scores, ids = topk.scores, topk.ids  # top_k never exceeds CANDIDATES, however long the rows
        beam = self._range(self.beams)[None, :]
        uniforms = filters.uniform(xp, state.seed[:n, None], beam, state.step[:n, None])
        index = filters.draw(xp, scores, state.top_k[:n], state.top_p[:n], uniforms)[:, :, None]
        picked = xp.take_along_axis(scores, index, axis=2)[:, :, 0]
        total = self._finite(state.total[:n, :] + picked)
        tokens = xp.take_along_axis(ids, index, axis=2)[:, :, 0]
        nothing = xp.full_like(tokens, self.pad)
        return Candidates(
            xp.concat([total, xp.full_like(total, NEG)], axis=1),
            xp.concat([tokens, nothing], axis=1),
            xp.concat([xp.zeros_like(tokens) + beam, xp.zeros_like(nothing)], axis=1),
        )

    def _rows(self, topk: TopK, n: int) -> tuple[Any, Any]:
        """Each row's 2B best (sampling slots of the batch may have made the rows longer)."""
        return topk.scores[:, :, : 2 * self.beams], topk.ids[:, :, : 2 * self.beams]

    def _attended(self, topk: TopK, n: int) -> Any:
        """Attention that each source position has received from each row, this step's included: [n, B, S]."""
        known = self.state.attended
        width = min(known.shape[2], topk.attention.shape[2])  # what is beyond the longest source is padding
        return known[:n, :, :width] + topk.attention[:, :, :width]

    def _keep(self, found: Candidates, counts: Any, missing: Any, n: int) -> None:
        """Copy ended hypotheses into the pool in candidate order, while it holds fewer than `width`."""
        xp, state, beams, columns = self.xp, self.state, self.beams, self._columns(n)
        counts = counts[:, :beams]
        place = state.kept_count[:n, None] + xp.cumulative_sum(xp.astype(counts, xp.int64), axis=1) - 1
        counts = counts & (place < state.width[:n, None])
        free = self._range(beams)[None, :, None]
        match = counts[:, None, :] & (place[:, None, :] == free)  # [n, place in the pool, rank]
        hit = xp.any(match, axis=2)
        pick = xp.argmax(xp.astype(match, xp.int8), axis=2)
        scores, tokens, parents = (take(xp, part[:, :beams], pick) for part in found)
        pools = (state.kept_tokens, state.kept_scores, state.kept_trail)
        grown = self._grown(Candidates(scores, tokens, parents), n)
        for pool, new in zip(pools, grown, strict=True):
            pool[:n, :, :columns] = xp.where(hit[:, :, None], new, pool[:n, :, :columns])
        if missing is not None:
            left = take(xp, missing, parents)
            state.kept_coverage[:n, :] = xp.where(hit, left, state.kept_coverage[:n, :])
        state.kept_steps[:n, :] = xp.where(hit, state.step[:n, None], state.kept_steps[:n, :])
        state.kept_count[:n] = state.kept_count[:n] + xp.sum(xp.astype(counts, xp.int64), axis=1)

    def _order(self, ends: Any, room: Any, diverse: Any, n: int) -> Any:
        """Which candidate each row goes on with: the first `width` that do not end; a sample keeps its row.

        Diverse groups fill the places they lost with what ended (fairseq main keeps such rows among the
        group's, though nothing at their rank counts any more).
        """
        xp, state, width = self.xp, self.state, self.state.width[:n, None]
        passed = xp.astype(ends | (self._ranks >= 2 * width), xp.int8)
        lost = xp.astype(ends | (self._ranks >= room[:, None]), xp.int8)
        lost = xp.where(self._ranks < width, lost, xp.full_like(lost, 2))
        passed = xp.where(diverse[:, None], lost, passed)
        order = xp.argsort(passed, axis=1, stable=True)[:, : self.beams]
        return xp.where(state.sampling[:n, None], self._ranks[:, : self.beams], order)

    def _continue(self, found: Candidates, order: Any, ends: Any, n: int) -> None:
        """Rows go on with the candidates of `order` [n, B]; where `ends` [n, 2B], they may not."""
        xp, state, columns = self.xp, self.state, self._columns(n)
        scores, tokens, parents = (take(xp, part, order) for part in found)
        ended = take(xp, ends, order)
        scores = xp.where((self._ranks[:, : self.beams] < state.width[:n, None]) & ~ended, scores, NEG)
        grown = self._grown(Candidates(scores, tokens, parents), n)
        for history, new in zip((state.tokens, state.scores, state.trail), grown, strict=True):
            history[:n, :, :columns] = new
        state.total[:n, :], state.current[:n, :], state.parents[:n, :] = scores, tokens, parents

    def _grown(self, chosen: Candidates, n: int) -> tuple[Any, Any, Any]:
        """Histories (tokens, scores, trail) of `chosen` [n, B]: the parent's, and one column more."""
        xp, state, columns = self.xp, self.state, self._columns(n)
        at = self._range(columns)[None, None, :] == state.step[:n, None, None] + 1

        def grow(history: Any, new: Any) -> Any:
            old = take(xp, history[:n, :, :columns], chosen.parents)
            return xp.where(at, new[:, :, None], old)

        return (
            grow(state.tokens, chosen.tokens),
            grow(state.scores, chosen.scores),
            grow(state.trail, chosen.parents),
        )

    def _minimum(self, n: int) -> Any:
        return filters.minimum(self.xp, self.state.step[:n], self.state.shortest[:n], self.eos, self.pad)

    def _finite(self, scores: Any) -> Any:
        return self.xp.where(scores == scores, scores, NEG)  # not a number: never

    def _columns(self, n: int) -> int:
        """History columns in use once this step is taken."""
        return min(self.columns, max(self._steps[:n]) + 2) if self._tight else self.columns

    def _range(self, stop: int) -> Any:
        return self.xp.arange(stop, dtype=self.xp.int64, device=self.device)

    def _host(self, array: Any) -> Any:
        return np.asarray(to_device(array, "cpu"))
