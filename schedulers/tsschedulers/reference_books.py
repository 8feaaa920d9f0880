"""The nouns of the reference: sizes, pages, pools, requests, tickets and steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from tsschedulers._core import CacheGroupConfig, Config


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
