"""Faults for engine/schedule: (name, file, old, new, pytest arguments). `tests.mutants` injects them."""

FAULTS = [
    (
        "a cancellation is lost",
        "engine/schedule/lane.py",
        "f.request.cancelled or f.request.deadline <= now",
        "f.request.deadline <= now",
        "tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py tests/engine/schedule/test_aio.py",
    ),
    (
        "late flags are applied to the request that is in the slot now",
        "engine/schedule/lane.py",
        "for row in done if (flight := step.flights[row]).slot >= 0]",
        "for row in done if (flight := step.flights[row])]",
        "tests/engine/schedule/test_lane.py tests/engine/executors/test_cuda_graph.py",
    ),
    (
        "deadlines are ignored during decoding",
        "engine/schedule/lane.py",
        "f.request.cancelled or f.request.deadline <= now",
        "f.request.cancelled",
        "tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py tests/engine/schedule/test_aio.py",
    ),
    (
        "deadlines are ignored in the queue",
        "engine/schedule/queue.py",
        "while self._deadlines and self._deadlines[0][0] <= now:",
        "while False:",
        "tests/engine/schedule/test_queue.py tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py",
    ),
    (
        "a group is admitted in part",
        "engine/schedule/engine.py",
        ("            if excess_tokens > 0 and not follow_up:\n                wait"),
        (
            "            while excess_tokens > 0 and len(group) > 1:\n"
            "                excess_tokens -= len(group[-1].source)\n"
            "                group, lanes = group[:-1], lanes[:-1]\n"
            "            if excess_tokens > 0 and not follow_up:\n"
            "                wait"
        ),
        "tests/engine/schedule/test_engine.py tests/engine/schedule/test_engine_faults.py",
    ),
    (
        "the time of a request's own decoding does not count",
        "engine/schedule/forecast.py",
        "own = max(self._steps(r, lane, 2.0) for r in part)",
        "own = 0.0",
        "tests/engine/schedule/test_forecast.py",
    ),
    (
        "new requests make waiting groups late",
        "engine/schedule/forecast.py",
        "        self._check_promises(lane, part, turn, reserve, now)\n",
        "",
        "tests/engine/schedule/test_forecast.py",
    ),
    (
        "a lost device is an error like others",
        "engine/schedule/engine.py",
        "        if lane.executor.is_device_lost(error):\n",
        "        if False:\n",
        "tests/engine/schedule/test_lost_device.py",
    ),
    (
        "groups wait until earlier groups have finished",
        "engine/schedule/queue.py",
        ("            if len(group.requests) > 1:\n                groups.move_to_end(ticket)"),
        ("            if False:\n                groups.move_to_end(ticket)"),
        "tests/engine/schedule/test_queue.py tests/engine/schedule/test_engine.py",
    ),
    (
        "queue space is not given back",
        "engine/schedule/queue.py",
        ("request), request)\n        self.tokens -= len(request.source)\n"),
        "request), request)\n",
        "tests/engine/schedule/test_queue.py tests/engine/schedule/test_engine.py",
    ),
    (
        "answers whose options decide their length are samples of the forecast",
        "engine/schedule/forecast.py",
        "        if not request.decided:\n",
        "        if True:\n",
        "tests/engine/schedule/test_forecast.py -k decide_its_length",
    ),
    (
        "work continues after its deadline",
        "engine/schedule/slices.py",
        "            if work.future.cancelled():\n",
        "            if False:\n",
        "tests/server/http/test_slices.py -k ends_at_its_deadline",
    ),
    (
        "long work is not interrupted for other work",
        "engine/schedule/slices.py",
        "        while time.monotonic() < end:\n",
        "        while True:\n",
        "tests/server/http/test_slices.py -k test_sliced_tasks_take_turns",
    ),
    (
        "an error of work beside the event loop is lost",
        "engine/schedule/slices.py",
        "            work.future.set_exception(error)\n",
        "            work.future.set_result(None)\n",
        "tests/server/http/test_slices.py -k test_error_of_sliced_work_reaches_its_caller",
    ),
    (
        "requests that never had enough time count as load",
        "engine/schedule/forecast.py",
        "if own * turn_of_part <= budget:",
        "if True:",
        "tests/engine/schedule/test_forecast.py -k never_had",
    ),
    (
        "a pause is a long turn",
        "engine/schedule/forecast.py",
        "(now if any(left.requests for left in work) else None), 0",
        "(now if any(left.requests for left in work) or self._queue.requests else None), 0",
        "tests/engine/schedule/test_forecast.py -k idle_time",
    ),
    (
        "a waiting group without a promise keeps others out",
        "engine/schedule/queue.py",
        "if size > 1 and last.promised and",
        "if size > 1 and",
        "tests/engine/schedule/test_forecast.py -k without_a_promise",
    ),
    (
        "a taken hole is given to a second request",
        "engine/schedule/lane.py",
        "        del holes[: len(here)]\n",
        "",
        "tests/engine/schedule/test_lane.py -k takes_a_freed_slot",
    ),
    (
        "a cancelled request uses up the encoder's budget",
        "engine/schedule/queue.py",
        ("                self._leave(request, lane_round)\n                continue\n"),
        (
            "                self._leave(request, lane_round)\n"
            "                budget -= len(request.source)\n"
            "                continue\n"
        ),
        "tests/server/test_rare_faults.py -k cancelled",
    ),
    (
        "a timeout of the work is reported as a deadline",
        "engine/schedule/slices.py",
        "if not limit.expired():",
        "if False:",
        "tests/server/test_rare_faults.py -k timeout_of_the_work",
    ),
    (
        "a group may fill a lane",
        "engine/schedule/queue.py",
        "has and has >= room.share(request, len(groups))",
        "False",
        "tests/engine/schedule/test_queue.py -k share",
    ),
    (
        "long sources have as many slots as short ones",
        "engine/schedule/queue.py",
        "int(slots // 2 * SHORT_TOKENS // max(SHORT_TOKENS, tokens))",
        "slots // 2",
        "tests/engine/schedule/test_queue.py -k share",
    ),
    (
        "the slots of a group are not counted as they are taken",
        "engine/schedule/queue.py",
        "            used[ticket] = has + 1\n",
        "",
        "tests/engine/schedule/test_queue.py -k share",
    ),
    (
        "turns are counted in requests, however many steps these take",
        "engine/schedule/queue.py",
        "group.deficit + request.expected_steps - TURN_STEPS",
        "group.deficit",
        "tests/engine/schedule/test_queue.py -k counted_in_steps",
    ),
    (
        "the forecast ignores shares of slots",
        "engine/schedule/queue.py",
        "min(mean, max(mean / size, steps), share * turns)",
        "min(mean, max(mean / size, steps))",
        "tests/engine/schedule/test_forecast.py -k shares",
    ),
    (
        "equal sources that are decoded in other ways have one answer",
        "engine/schedule/aio.py",
        "else (tuple(source), options)",
        "else tuple(source)",
        "tests/engine/schedule/test_aio.py -k equal_jobs",
    ),
    (
        "equal jobs that draw samples are decoded once",
        "engine/schedule/aio.py",
        "return None if options.draws else",
        "return None if False else",
        "tests/engine/schedule/test_aio.py -k draw_samples",
    ),
    (
        "jobs of a disconnected client continue",
        "engine/schedule/aio.py",
        "            engine.cancel(requests)\n",
        "            pass\n",
        "tests/engine/schedule/test_aio.py -k cancelling_the_task_frees_slots_and_queue",
    ),
    (
        "each late answer widens the margin",
        "engine/schedule/tempo.py",
        "if arrived >= self._since:",
        "if True:",
        "tests/engine/schedule/test_tempo.py -k margin_once",
    ),
]
