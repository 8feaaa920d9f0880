"""The scheduler's policy in Python: for reading, and as the model that the C++ is tested against.

It keeps the same books with objects and lists where the C++ has ids, arrays and intrusive lists,
checks nothing that the C++ checks, and hands out no page numbers: a `Step` names requests.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from tsschedulers._core import CacheGroupConfig, Config

MAX_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """What `Config` takes; a group is (pages with the null page, window or None)."""

    page_size: int
    max_batch: int
    max_model_len: int
    token_budget: int
    groups: tuple[tuple[int, int | None], ...]
    tokens_per_step: int = 1
    host_pages: int = 0
    prefix_cache: bool = True
    watermark: float = 0.01
    ageing: int = 64
    prefix_hash_bits: int = 32

    def config(self) -> Config:
        """The same for the C++."""
        groups = [CacheGroupConfig(f"g{i}", pages, w) for i, (pages, w) in enumerate(self.groups)]
        return Config(
            page_size=self.page_size,
            max_batch=self.max_batch,
            max_model_len=self.max_model_len,
            token_budget=self.token_budget,
            groups=groups,
            tokens_per_step=self.tokens_per_step,
            host_pages=self.host_pages,
            prefix_cache=self.prefix_cache,
            watermark=self.watermark,
            ageing=self.ageing,
            prefix_hash_bits=self.prefix_hash_bits,
        )

    def pages(self, positions: int) -> int:
        """Pages that so many positions take."""
        return -(-positions // self.page_size)

    def peak(self, group: int, positions: int) -> int:
        """Pages that a request may hold at once in a group."""
        window = self.groups[group][1]
        if window is None or window + self.token_budget >= positions:
            return self.pages(positions)
        return min(self.pages(positions), self.pages(window + self.token_budget) + 2)

    def first(self, group: int, position: int) -> int:
        """The first page that a query at `position` reads."""
        window = self.groups[group][1]
        return 0 if window is None else max(0, position + 1 - window) // self.page_size


@dataclass(eq=False, slots=True)
class Page:
    """A page and the number of its owners; `node` is where the cache has it."""

    refs: int = 1
    node: Node | None = None


@dataclass(eq=False, slots=True)
class Node:
    """A page of tokens after its parent's, with a page a group."""

    parent: Node | None
    pages: list[Page | None]
    children: dict[tuple[int, ...], Node] = field(default_factory=dict[tuple[int, ...], "Node"])


@dataclass(slots=True)
class Clock:
    """The last planned and the last committed step."""

    planned: int = 0
    committed: int = 0


class Pool:
    """Pages of one group: free, behind the fence, idle in the cache, or owned."""

    def __init__(self, group: int, pages: int, windowed: bool, clock: Clock) -> None:
        self.group, self.windowed, self.clock = group, windowed, clock
        self.free = pages
        self.fence: list[tuple[Page, int]] = []
        self.lru: dict[Node, None] = {}

    @property
    def obtainable(self) -> int:
        """Pages that can be had now."""
        return self.free + len(self.lru)

    def allocate(self) -> Page:
        """A free page; evicts the least recently used one if there is none."""
        if self.free == 0:
            node = next(iter(self.lru))
            del self.lru[node]
            node.pages[self.group] = None
            self.free += 1
        self.free -= 1
        return Page()

    def share(self, page: Page) -> Page:
        """One more owner."""
        if page.refs == 1 and page.node is not None:
            del self.lru[page.node]
        page.refs += 1
        return page

    def drop(self, page: Page | None, last: int) -> None:
        """One owner less, once step `last` has committed."""
        if page is not None and last <= self.clock.committed:
            self._release(page)
        elif page is not None:
            self.fence.append((page, last))

    def pass_fence(self) -> None:
        """Releases what waited for the committed steps."""
        passed = [page for page, last in self.fence if last <= self.clock.committed]
        self.fence = [held for held in self.fence if held[1] > self.clock.committed]
        for page in passed:
            self._release(page)

    def adopt(self, node: Node, page: Page | None) -> None:
        """The cache takes the page, unless it has one there: then this one stays private."""
        if page is None or node.pages[self.group] is not None:
            return
        node.pages[self.group], page.node, page.refs = page, node, page.refs + 1

    def _release(self, page: Page) -> None:
        page.refs -= 1
        if page.refs == 0:
            self.free += 1
        elif page.refs == 1 and page.node is not None:
            self._enlist(page.node)

    def _enlist(self, node: Node) -> None:
        """Lists an idle page; those above it that are idle too go behind it."""
        self.lru[node] = None
        while not self.windowed and node.parent in self.lru:
            node = node.parent
            del self.lru[node]
            self.lru[node] = None


@dataclass(eq=False, slots=True)
class Home:
    """A request's place on the device: its pages by group (None: the window has passed)."""

    tables: list[list[Page | None]]
    node: Node
    planned: int
    published: int
    committed: int
    target: int
    last: int = 0


@dataclass(eq=False, slots=True)
class Ticket:
    """A transfer of pages begin .. end - 1, and what it owns of both ends."""

    load: bool
    request: Request
    begin: int
    end: int
    device: list[list[Page | None]]
    host: list[list[Page | None]]
    nodes: list[Node]
    last: int


@dataclass(eq=False, slots=True)
class Request:
    """A request. `state` is one of the C++'s states, in lower case."""

    id: int
    order: tuple[int, int]
    tokens: list[int]
    limit: int  # tokens when done
    salt: int
    priority: int
    parent: Request | None = None
    state: str = "waiting"
    home: Home | None = None
    pending: int = 0
    steps: int = 0
    retracted: bool = False
    load_failed: bool = False

    def __lt__(self, other: Request) -> bool:
        return self.order < other.order


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of a step: positions begin .. end - 1."""

    request: int
    begin: int
    end: int
    most: int  # tokens that it may yield
    decode: bool


@dataclass(slots=True)
class Step:
    """A plan, in terms of requests."""

    step: int = 0
    reason: str = ""
    rows: list[Row] = field(default_factory=list[Row])
    admitted: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    retracted: list[int] = field(default_factory=list[int])
    stores: dict[int, int] = field(default_factory=dict[int, int])  # ticket: pages of all groups
    loads: dict[int, int] = field(default_factory=dict[int, int])


class Reference:
    """`Scheduler`, less the checks; requests are numbered by submission."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.clock = sizes, Clock()
        windows = [window is not None for _, window in sizes.groups]
        pools = [pages - 1 for pages, _ in sizes.groups]
        self.pools = [Pool(g, n, windows[g], self.clock) for g, n in enumerate(pools)]
        self.host = [Pool(g, sizes.host_pages, windows[g], Clock()) for g in range(len(pools))]
        self.roots: dict[int, Node] = {}
        self.host_roots: dict[int, Node] = {}
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
        self._owed = [0] * len(self.pools)
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
                pool.obtainable - owed for pool, owed in zip(self.pools, self._owed, strict=True)
            ]
            if all(n == 0 or n <= h for n, h in zip(need, have, strict=True)):
                for g, n in enumerate(need):
                    home.tables[g] += [self.pools[g].allocate() for _ in range(n)]
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
        return len(self.pools[group].fence) + sum(len(t.device[group]) for t in tickets)

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
        path, loads = self._find(request)
        if not self._fits(request, path):
            return False
        self.waiting.pop(0)
        self.free_slots -= 1
        home = self._take(request, path)
        request.home = home
        if loads:
            self._begin_load(step, request, len(path), loads)
        else:
            self._begin_prefill(step, request)
        return True

    def _find(self, request: Request) -> tuple[list[Node], list[Node]]:
        """The cached prefix: nodes on the device, then nodes of the host from the first page on."""
        path = self._walk(self.roots, request) if self.sizes.prefix_cache else []
        path = path[: self._longest(path, 0)]
        if request.load_failed or not self.sizes.host_pages:
            return path, []
        host = self._walk(self.host_roots, request)
        host = host[: self._longest(host, len(path))]
        return path, host if len(host) > len(path) else []

    def _walk(self, roots: dict[int, Node], request: Request) -> list[Node]:
        node, path = roots.get(request.salt), list[Node]()
        for index in range((len(request.tokens) - 1) // self.sizes.page_size):
            node = node.children.get(self._key(request, index)) if node else None
            path += [node] if node else []
        return path

    def _key(self, request: Request, index: int) -> tuple[int, ...]:
        size = self.sizes.page_size
        return tuple(request.tokens[index * size : (index + 1) * size])

    def _longest(self, path: list[Node], begin: int) -> int:
        for end in range(len(path), begin, -1):
            starts = [
                max(begin, self.sizes.first(g, end * self.sizes.page_size))
                for g in range(len(self.pools))
            ]
            if all(
                node.pages[g] for g, start in enumerate(starts) for node in path[start:end]
            ):  # fmt: skip
                return end
        return begin

    def _fits(self, request: Request, path: list[Node]) -> bool:
        hit = len(path)
        alone = not self.running and not any(
            t.load and t.request.state == "loading" for t in self.tickets.values()
        )
        for g, pool in enumerate(self.pools):
            first = self.sizes.first(g, hit * self.sizes.page_size)
            need = max(0, self.sizes.peak(g, len(request.tokens)) - (hit - first))
            if not alone:
                need += ceil(self.sizes.watermark * (self.sizes.groups[g][0] - 1))
                if request.retracted:
                    need += self.sizes.pages(self.sizes.tokens_per_step)
            if need > pool.obtainable - sum(node in pool.lru for node in path[first:hit]):
                return False
        return True

    def _take(self, request: Request, path: list[Node]) -> Home:
        tables: list[list[Page | None]] = []
        for g, pool in enumerate(self.pools):
            first = self.sizes.first(g, len(path) * self.sizes.page_size)
            shared = [pool.share(page) for n in path[first:] if (page := n.pages[g]) is not None]
            tables.append([None] * first + shared)
        node = path[-1] if path else self.roots.setdefault(request.salt, self._root())
        done = len(path) * self.sizes.page_size
        return Home(tables, node, done, len(path), done, len(request.tokens))

    def _root(self) -> Node:
        return Node(None, [None] * len(self.pools))

    def _begin_prefill(self, step: Step, request: Request) -> None:
        home = request.home
        assert home is not None
        if request.parent is not None and request.parent.state in ("prefilling", "decoding"):
            self._share_parent(request.parent, request)
        chunk = min(self._unplanned(request), self._budget)
        for g, (_, window) in enumerate(self.sizes.groups):
            end = home.target if window is None else home.planned + chunk
            for _ in range(self.sizes.pages(end) - len(home.tables[g])):
                home.tables[g].append(self.pools[g].allocate())
        step.admitted.append((request.id, home.planned))
        request.state, request.load_failed = "prefilling", False
        insort(self.running, request)
        self._budget -= chunk
        self._emit(step, request, chunk)

    def _share_parent(self, parent: Request, request: Request) -> None:
        """A fork has the parent's complete pages, and a copy of the next one."""
        source, home, size = parent.home, request.home, self.sizes.page_size
        assert source is not None
        assert home is not None
        most = len(request.tokens) - 1

        def has(index: int) -> bool:
            return all(len(table) > index and table[index] is not None for table in source.tables)

        index = home.committed // size
        while index < most // size and index < source.committed // size and has(index):
            for g, table in enumerate(source.tables):
                page = table[index]
                assert page is not None
                home.tables[g].append(self.pools[g].share(page))
            index += 1
        done = index * size
        common = min(source.committed, most)
        if common > done and has(index):
            done = min(common, done + size)
            source.last = self.clock.planned + 1
        home.planned = home.committed = done

    def _retract(self, step: Step, request: Request) -> None:
        self._budget += self._decode_rows(request)
        self.running.remove(request)
        request.state = "storing" if self._begin_store(step, request) else "waiting"
        self._leave(request)
        request.retracted = True
        insort(self.waiting, request)
        step.retracted.append(request.id)
        self.retractions += 1

    def _leave(self, request: Request) -> None:
        home = request.home
        assert home is not None
        self._drop(self.pools, home.tables, home.last)
        if home.last <= self.clock.committed:
            self.free_slots += 1
        else:
            self.slot_fence.append(home.last)
        request.home = None

    def _drop(self, pools: list[Pool], tables: list[list[Page | None]], last: int) -> None:
        for pool, table in zip(pools, tables, strict=True):
            for page in reversed(table):
                pool.drop(page, last)

    def _end(self, request: Request) -> None:
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
        if request.home is not None:
            self._leave(request)
        request.state = "finished"
        del self.requests[request.id]

    # Transfers

    def _begin_load(self, step: Step, request: Request, hit: int, path: list[Node]) -> None:
        end, size = len(path), self.sizes.page_size
        device: list[list[Page | None]] = []
        host: list[list[Page | None]] = []
        for g, pool in enumerate(self.pools):
            first = max(hit, self.sizes.first(g, end * size))
            kept = [self.host[g].share(p) for n in path[first:] if (p := n.pages[g]) is not None]
            host.append([None] * first + kept)
            whole = self.sizes.groups[g][1] is None
            last = self.sizes.pages(len(request.tokens)) if whole else end
            device.append([None] * (first - hit) + [pool.allocate() for _ in range(first, last)])
        self.issued += 1
        self.tickets[self.issued] = Ticket(True, request, hit, end, device, host, path, 0)
        step.loads[self.issued] = sum(page is not None for table in host for page in table)
        step.admitted.append((request.id, end * size))
        request.state = "loading"

    def _begin_store(self, step: Step, request: Request) -> bool:
        """A ticket for what the request has committed and the host has not, as far as it fits."""
        home = request.home
        assert home is not None
        if not self.sizes.host_pages:
            return False
        nodes = [self.host_roots.setdefault(request.salt, self._root())]
        host: list[list[Page | None]] = [[] for _ in self.pools]
        device: list[list[Page | None]] = [[] for _ in self.pools]
        begin = 0
        for index in range(home.committed // self.sizes.page_size):
            pages = [table[index] for table in home.tables]
            child = nodes[-1].children.get(self._key(request, index))
            has = child is not None and all(
                kept or not page for kept, page in zip(child.pages, pages, strict=True)
            )
            if has and begin == index and child is not None:
                begin += 1
                for g, pool in enumerate(self.host):
                    kept = child.pages[g]
                    host[g].append(pool.share(kept) if pages[g] and kept else None)
            elif all(pool.obtainable or not p for pool, p in zip(self.host, pages, strict=True)):
                for g, page in enumerate(pages):
                    host[g].append(self.host[g].allocate() if page else None)
                    device[g].append(self.pools[g].share(page) if page else None)
                child = self._extend(nodes[-1], self._key(request, index))
            else:
                break
            nodes.append(child)
        end = len(nodes) - 1
        if begin == end:
            self._drop(self.host, host, 0)
            return False
        self.issued += 1
        ticket = Ticket(False, request, begin, end, device, host, nodes[1:], home.last)
        self.tickets[self.issued] = ticket
        step.stores[self.issued] = sum(page is not None for table in device for page in table)
        return True

    def _extend(self, node: Node, key: tuple[int, ...]) -> Node:
        return node.children.setdefault(key, Node(node, [None] * len(self.pools)))

    def transfer_done(self, ticket: int, ok: bool) -> None:
        """Acknowledge a transfer."""
        done = self.tickets.pop(ticket)
        request = done.request
        if not done.load:
            for index in range(done.end - 1, done.begin - 1, -1) if ok else ():
                for pool, table in zip(self.host, done.host, strict=True):
                    pool.adopt(done.nodes[index], table[index])
            request.state = "waiting" if request.state == "storing" else request.state
        elif request.state == "loading" and ok:
            home = request.home
            assert home is not None
            for table, tail in zip(home.tables, done.device, strict=True):
                table += tail
            done.device = [[] for _ in self.pools]
            home.planned = home.committed = done.end * self.sizes.page_size
            request.state = "prefilling"
            self._settle(request)
            insort(self.running, request)
        elif request.state == "loading":
            self._leave(request)
            request.state, request.load_failed = "waiting", True
            insort(self.waiting, request)
        self._drop(self.host, done.host, 0)
        self._drop(self.pools, done.device, done.last)

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
                self._settle(request)
            if request.id in finished or len(request.tokens) == request.limit:
                self._end(request)
        for pool in self.pools:
            pool.pass_fence()
        self.free_slots += sum(last <= step for last in self.slot_fence)
        self.slot_fence = [last for last in self.slot_fence if last > step]

    def _settle(self, request: Request) -> None:
        """Publish complete pages; give up those that the window has passed."""
        home = request.home
        assert home is not None
        for index in range(home.published, home.committed // self.sizes.page_size):
            home.published += 1
            home.node = self._extend(home.node, self._key(request, index))
            for pool, table in zip(self.pools, home.tables, strict=True):
                if self.sizes.prefix_cache:
                    pool.adopt(home.node, table[index])
        for g, table in enumerate(home.tables):
            for index in range(min(self.sizes.first(g, home.committed), len(table))):
                page, table[index] = table[index], None
                self.pools[g].drop(page, home.last)
