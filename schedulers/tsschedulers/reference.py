"""The scheduler's policy in Python: for reading, and as the model that the C++ is tested against.

It keeps the same books with objects and lists where the C++ has ids, arrays and intrusive lists,
checks nothing that the C++ checks, and hands out no page numbers: a `Step` names requests.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from tsschedulers.reference_books import Clock, Request, Row, Sizes, Step, Ticket
from tsschedulers.reference_cache import Cache

MAX_IN_FLIGHT = 2


class Reference:
    """`Scheduler`, less the checks; requests are numbered by submission."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.clock = sizes, Clock()
        self.cache = Cache(sizes, self.clock)
        self.requests: dict[int, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.free_slots, self.slot_fence = sizes.max_batch, list[int]()
        self.flight: dict[int, list[tuple[Request, Row]]] = {}
        self.tickets: dict[int, Ticket] = {}
        self.submitted = self.issued = self.retractions = 0

    # What clients ask for

    def submit(
        self, tokens: Sequence[int], max_new_tokens: int, *, priority: int = 0, salt: int = 0
    ) -> int:
        """Queue a request."""
        order = (priority * self.sizes.ageing + self.clock.planned, self.submitted)
        limit = len(tokens) + max_new_tokens
        request = Request(self.submitted, order, list(tokens), limit, salt, priority)
        self.submitted += 1
        self.requests[request.id] = request
        insort(self.waiting, request)
        return request.id

    def fork(self, parent: int, max_new_tokens: int) -> int:
        """Queue a request that goes on from the parent's committed tokens."""
        source = self.requests[parent]
        child = self.submit(
            source.tokens, max_new_tokens, priority=source.priority, salt=source.salt
        )
        self.requests[child].parent = source
        return child

    def abort(self, id_: int) -> bool:
        """Forget a request."""
        if id_ not in self.requests:
            return False
        self._end(self.requests[id_])
        return True

    # Planning

    def plan(self) -> Step:
        """One pass over the running requests in their order, then admissions."""
        step = Step()
        if self.clock.planned - self.clock.committed == MAX_IN_FLIGHT:
            step.reason = "in_flight"
            return step
        self._budget = self.sizes.token_budget - sum(map(self._decode_rows, self.running))
        self._owed = [0] * len(self.cache.pools)
        self._pressed = False
        chunks: list[tuple[Request, int]] = []
        for request in list(self.running):
            if request not in self.running:
                break
            chunk = min(self._unplanned(request), self._budget)
            decode = self._decode_rows(request)
            if not (decode or chunk) or not self._make_room(step, request, decode or chunk):
                continue
            if decode:
                self._emit(step, request, decode)
            else:
                self._budget -= chunk
                chunks.append((request, chunk))
        for request, chunk in chunks:
            self._emit(step, request, chunk)
        while not self._pressed and self._admit_first(step):
            pass
        self._close(step)
        return step

    def _close(self, step: Step) -> None:
        if step.rows:
            self.clock.planned += 1
            step.step = self.clock.planned
            self.flight[step.step] = [(self.requests[row.request], row) for row in step.rows]
        elif not self.requests:
            step.reason = "idle"
        else:
            in_flight = self.clock.planned > self.clock.committed
            step.reason = "in_flight" if in_flight else "waiting_transfer"

    def _unplanned(self, request: Request) -> int:
        assert request.home is not None
        return max(0, request.home.target - request.home.planned)

    def _decode_rows(self, request: Request) -> int:
        left = request.limit - len(request.tokens) - request.pending
        several = self.sizes.tokens_per_step
        if self._unplanned(request) > 0 or (several > 1 and request.pending):
            return 0
        return min(several, left)

    def _make_room(self, step: Step, request: Request, rows: int) -> bool:
        """Pages for the next rows: now, or from the victim, the last in the order."""
        home = request.home
        assert home is not None
        need = [max(0, self.sizes.pages(home.planned + rows) - len(table)) for table in home.tables]
        while True:
            have = [
                pool.obtainable - owed
                for pool, owed in zip(self.cache.pools, self._owed, strict=True)
            ]
            if all(n == 0 or n <= h for n, h in zip(need, have, strict=True)):
                for g, table in enumerate(home.tables):
                    self.cache.grow(table, g, home.planned + rows)
                return True
            self._pressed = True
            soon = all(n == 0 or n <= h + self._returning(g) for g, (n, h) in
                       enumerate(zip(need, have, strict=True)))  # fmt: skip
            if soon or len(self.running) == 1:
                self._owed = [owed + n for owed, n in zip(self._owed, need, strict=True)]
                return False
            victim = self.running[-1]
            self._retract(step, victim)
            if victim is request:
                return False

    def _returning(self, group: int) -> int:
        tickets = [t for t in self.tickets.values() if not t.load or t.request.state == "finished"]
        return len(self.cache.pools[group].fence) + sum(len(t.device[group]) for t in tickets)

    def _emit(self, step: Step, request: Request, rows: int) -> None:
        home = request.home
        assert home is not None
        decode = self._unplanned(request) == 0
        begin, end = home.planned, home.planned + rows
        most = rows if decode else int(end == home.target)
        step.rows.append(Row(request.id, begin, end, most, decode))
        home.planned, home.last = end, self.clock.planned + 1
        request.pending += most
        request.steps += 1

    # Places: given, lost and left

    def _admit_first(self, step: Step) -> bool:
        if not (self.waiting and self._budget > 0 and self.free_slots > 0):
            return False
        request = self.waiting[0]
        if request.steps or request.state != "waiting":
            return False
        path, loads = self.cache.find(request)
        loading = [t for t in self.tickets.values() if t.request.state == "loading"]
        alone = not self.running and not loading
        growth = self.sizes.pages(self.sizes.tokens_per_step) if request.retracted else 0
        if self.cache.shortage(request, path, 0 if alone else growth, watermark=not alone):
            return False
        self.waiting.pop(0)
        self.free_slots -= 1
        request.home = self.cache.take(request, path)
        if loads:
            ticket = self.cache.load(request, len(path), loads)
            pages = sum(page is not None for table in ticket.host for page in table)
            step.loads[self._issue(ticket)] = pages
            step.admitted.append((request.id, len(loads) * self.sizes.page_size))
            request.state = "loading"
        else:
            self._begin_prefill(step, request)
        return True

    def _issue(self, ticket: Ticket) -> int:
        self.issued += 1
        self.tickets[self.issued] = ticket
        return self.issued

    def _begin_prefill(self, step: Step, request: Request) -> None:
        home = request.home
        assert home is not None
        if request.parent is not None and request.parent.state in ("prefilling", "decoding"):
            self.cache.share_parent(request.parent, request)
        chunk = min(self._unplanned(request), self._budget)
        for g, (_, window) in enumerate(self.sizes.groups):
            end = home.target if window is None else home.planned + chunk
            self.cache.grow(home.tables[g], g, end)
        step.admitted.append((request.id, home.planned))
        request.state, request.load_failed = "prefilling", False
        insort(self.running, request)
        self._budget -= chunk
        self._emit(step, request, chunk)

    def _retract(self, step: Step, request: Request) -> None:
        self._budget += self._decode_rows(request)
        self.running.remove(request)
        ticket = self.cache.store(request)
        if ticket is not None:
            pages = sum(page is not None for table in ticket.device for page in table)
            step.stores[self._issue(ticket)] = pages
        request.state = "waiting" if ticket is None else "storing"
        self._leave(request)
        request.retracted = True
        request.parent = None  # its tokens are no longer the parent's
        insort(self.waiting, request)
        step.retracted.append(request.id)
        self.retractions += 1

    def _leave(self, request: Request) -> None:
        home = request.home
        assert home is not None
        self.cache.drop(self.cache.pools, home.tables, home.last)
        if home.last <= self.clock.committed:
            self.free_slots += 1
        else:
            self.slot_fence.append(home.last)
        request.home = None

    def _end(self, request: Request) -> None:
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
        if request.home is not None:
            self._leave(request)
        request.state = "finished"
        del self.requests[request.id]

    # Transfers

    def transfer_done(self, ticket: int, ok: bool) -> None:
        """Acknowledge a transfer."""
        done = self.tickets.pop(ticket)
        request = done.request
        if not done.load:
            if ok:
                self.cache.stored(done)
            request.state = "waiting" if request.state == "storing" else request.state
        elif request.state == "loading" and ok:
            home = request.home
            assert home is not None
            for table, tail in zip(home.tables, done.device, strict=True):
                table += tail
            done.device = [[] for _ in self.cache.pools]
            home.planned = home.committed = done.end * self.sizes.page_size
            request.state = "prefilling"
            self.cache.settle(request)
            insort(self.running, request)
        elif request.state == "loading":
            self._leave(request)
            request.state, request.load_failed = "waiting", True
            insort(self.waiting, request)
        self.cache.drop(self.cache.host, done.host, 0)
        self.cache.drop(self.cache.pools, done.device, done.last)

    # Committing

    def commit(self, step: int, tokens: dict[int, list[int]], finished: set[int]) -> None:
        """Apply the sampled tokens, by request; `finished` ends a request."""
        self.clock.committed = step
        for request, row in self.flight.pop(step):
            if request.state == "finished":
                continue
            new = tokens.get(request.id, []) if row.most else []
            request.steps -= 1
            request.pending -= row.most
            request.tokens += new
            if request.home is not None:
                request.home.committed = row.end - max(0, row.most - len(new))
                if row.most > 1:
                    request.home.planned = request.home.committed
                request.state = "decoding" if row.most else request.state
                self.cache.settle(request)
            if request.id in finished or len(request.tokens) == request.limit:
                self._end(request)
        for pool in self.cache.pools:
            pool.pass_fence()
        self.free_slots += sum(last <= step for last in self.slot_fence)
        self.slot_fence = [last for last in self.slot_fence if last > step]
