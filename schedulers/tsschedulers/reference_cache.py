"""The reference's cache: what of a prefix is where, and who owns it."""

from __future__ import annotations

from math import ceil

from tsschedulers.reference_books import Clock, Home, Node, Page, Pool, Request, Sizes, Ticket

Tables = list[list[Page | None]]


class Cache:
    """Pools and prefix trees of the device and of the host."""

    def __init__(self, sizes: Sizes, clock: Clock) -> None:
        self.sizes, self.clock = sizes, clock
        windows = [window is not None for _, window in sizes.groups]
        pools = [pages - 1 for pages, _ in sizes.groups]
        self.pools = [Pool(g, n, windows[g], clock) for g, n in enumerate(pools)]
        self.host = [Pool(g, sizes.host_pages, windows[g], Clock()) for g in range(len(pools))]
        self.roots: dict[int, Node] = {}
        self.host_roots: dict[int, Node] = {}

    def find(self, request: Request) -> tuple[list[Node], list[Node]]:
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

    def shortage(self, request: Request, path: list[Node], spare: int, watermark: bool) -> bool:
        """Whether the pools lack what the request needs beyond the hit, and `spare` pages."""
        hit = len(path)
        for g, pool in enumerate(self.pools):
            first = self.sizes.first(g, hit * self.sizes.page_size)
            need = max(0, self.sizes.peak(g, len(request.tokens)) - (hit - first)) + spare
            if watermark:
                need += ceil(self.sizes.watermark * (self.sizes.groups[g][0] - 1))
            if need > pool.obtainable - sum(node in pool.lru for node in path[first:hit]):
                return True
        return False

    def take(self, request: Request, path: list[Node]) -> Home:
        """A place with the pages of the hit."""
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

    def share_parent(self, parent: Request, request: Request) -> None:
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

    def _extend(self, node: Node, key: tuple[int, ...]) -> Node:
        return node.children.setdefault(key, Node(node, [None] * len(self.pools)))

    def settle(self, request: Request) -> None:
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

    def drop(self, pools: list[Pool], tables: list[list[Page | None]], last: int) -> None:
        """Give up pages, back to front, once step `last` has committed."""
        for pool, table in zip(pools, tables, strict=True):
            for page in reversed(table):
                pool.drop(page, last)

    def grow(self, table: list[Page | None], group: int, end: int) -> None:
        """New pages up to `end` positions."""
        missing = range(self.sizes.pages(end) - len(table))
        table.extend([self.pools[group].allocate() for _ in missing])

    def load(self, request: Request, hit: int, path: list[Node]) -> Ticket:
        """A ticket for the host's pages of the hit, and all others that the request needs."""
        end, size = len(path), self.sizes.page_size
        device: Tables = []
        host: Tables = []
        for g, pool in enumerate(self.pools):
            first = max(hit, self.sizes.first(g, end * size))
            kept = [self.host[g].share(p) for n in path[first:] if (p := n.pages[g]) is not None]
            host.append([None] * first + kept)
            whole = self.sizes.groups[g][1] is None
            last = self.sizes.pages(len(request.tokens)) if whole else end
            device.append([None] * (first - hit) + [pool.allocate() for _ in range(first, last)])
        return Ticket(True, request, hit, end, device, host, path, 0)

    def store(self, request: Request) -> Ticket | None:
        """A ticket for what the request has committed and the host has not, as far as it fits."""
        home = request.home
        assert home is not None
        if not self.sizes.host_pages:
            return None
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
        if not any(page for table in device for page in table):
            self.drop(self.host, host, 0)
            return None
        return Ticket(False, request, begin, end, device, host, nodes[1:], home.last)

    def stored(self, ticket: Ticket) -> None:
        """The host has the ticket's pages."""
        for index in range(ticket.end - 1, ticket.begin - 1, -1):
            for pool, table in zip(self.host, ticket.host, strict=True):
                pool.adopt(ticket.nodes[index], table[index])
