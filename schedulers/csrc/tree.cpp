#include "tree.h"

#include <algorithm>
#include <cstring>

namespace tsscheduler {

Tree::Tree(std::vector<Group> groups, std::int32_t page_size, std::int32_t hash_bits,
           const Clock& clock)
    : clock_(clock), page_size_(page_size),
      hash_mask_(static_cast<std::uint32_t>((std::uint64_t{1} << hash_bits) - 1)) {
    std::size_t pages = 1;
    for (const Group& group : groups) {
        groups_.push_back({group.pool, group.windowed});
        groups_.back().node_of_page.assign(static_cast<std::size_t>(group.pool->total()) + 1, 0);
        pages += static_cast<std::size_t>(group.pool->total());
        group.pool->listen(*this, count() - 1);
    }
    nodes_.reserve(pages);
    places_.reserve(pages * groups_.size());
    tokens_.reserve(pages * static_cast<std::size_t>(page_size_));
    add(kNoNode);
    for (std::int32_t g = 0; g < count(); ++g)
        place(kNoNode, g) = {.prev = kNoNode, .next = kNoNode}; // the ends of an empty list
}

std::uint32_t Tree::hash(NodeId parent, std::span<const TokenId> tokens) const {
    auto h = static_cast<std::uint64_t>(parent);
    const auto mix = [&h](std::uint64_t word) {
        h = (h ^ word) * 0x9E3779B97F4A7C15U;
        h ^= h >> 29U;
    };
    std::size_t i = 0;
    for (; i + 1 < tokens.size(); i += 2)
        mix(static_cast<std::uint64_t>(tokens[i]) << 32U |
            static_cast<std::uint64_t>(tokens[i + 1]));
    if (i < tokens.size()) mix(static_cast<std::uint64_t>(tokens[i]));
    return static_cast<std::uint32_t>(h >> 32U) & hash_mask_;
}

bool Tree::says(NodeId node, std::span<const TokenId> tokens) const {
    return std::memcmp(this->tokens(node).data(), tokens.data(), tokens.size_bytes()) == 0;
}

// Tokens are compared: equal hashes prove nothing.
NodeId Tree::find(std::uint32_t hash, NodeId parent, std::span<const TokenId> tokens) const {
    ++clock_.work;
    return others_.find(hash, [&](NodeId node) {
        ++clock_.work;
        return nodes_[node].parent == parent && says(node, tokens);
    });
}

NodeId Tree::find_root(std::int64_t salt) const {
    const auto found = roots_.find(salt);
    return found == roots_.end() ? kNoNode : found->second;
}

NodeId Tree::root(std::int64_t salt) {
    if (const NodeId found = find_root(salt); found != kNoNode) return found;
    const NodeId node = add(kNoNode);
    roots_.emplace(salt, node);
    salts_.emplace(node, salt);
    return node;
}

NodeId Tree::child(NodeId parent, std::span<const TokenId> tokens) const {
    ++clock_.work;
    const Node& from = nodes_[parent];
    if (from.child != kNoNode && says(from.child, tokens)) return from.child;
    return from.others > 0 ? find(hash(parent, tokens), parent, tokens) : kNoNode;
}

NodeId Tree::extend(NodeId parent, std::span<const TokenId> tokens) {
    if (const NodeId found = child(parent, tokens); found != kNoNode) return found;
    const NodeId node = add(parent);
    std::ranges::copy(tokens, tokens_.begin() + std::ptrdiff_t{node} * page_size_);
    Node& from = nodes_[parent];
    if (from.child == kNoNode) {
        from.child = node;
    } else {
        ++from.others;
        nodes_[node].hash = hash(parent, tokens);
        others_.insert(nodes_[node].hash, node);
    }
    return node;
}

NodeId Tree::add(NodeId parent) {
    NodeId node = kNoNode;
    if (free_.empty()) {
        node = to_i32(nodes_.size());
        nodes_.emplace_back();
        places_.resize(places_.size() + groups_.size());
        tokens_.resize(tokens_.size() + static_cast<std::size_t>(page_size_));
    } else {
        node = free_.back();
        free_.pop_back();
        nodes_[node] = {};
        for (std::int32_t g = 0; g < count(); ++g)
            place(node, g) = {};
    }
    nodes_[node].parent = parent;
    return node;
}

// Removes the node, and then its parents, while nothing needs them.
void Tree::remove_unused(NodeId node) {
    while (node != kNoNode && nodes_[node].unused()) {
        for (std::int32_t g = 0; g < count(); ++g)
            if (holds(node, g)) return;
        const NodeId parent = nodes_[node].parent;
        if (const auto salt = salts_.find(node); salt != salts_.end()) {
            roots_.erase(salt->second);
            salts_.erase(salt);
        } else {
            drop_child(parent, node);
        }
        free_.push_back(node);
        node = parent;
    }
}

void Tree::drop_child(NodeId parent, NodeId node) {
    Node& from = nodes_[parent];
    if (from.child == node) {
        from.child = kNoNode;
    } else {
        --from.others;
        others_.erase(nodes_[node].hash, node);
    }
}

SealedPage Tree::share(NodeId node, std::int32_t group) {
    return groups_[group].pool->share_cached(place(node, group).page);
}

void Tree::adopt(NodeId node, std::int32_t group, SealedPage&& page) {
    assert(!holds(node, group));
    const PageId id = groups_[group].pool->cache(std::move(page));
    place(node, group).page = id;
    groups_[group].node_of_page[id] = node;
    ++adopted_;
}

// Lists an idle page. Those above it that are idle too go behind it: they were used with it.
void Tree::idle(std::int32_t group, PageId page) {
    NodeId node = groups_[group].node_of_page[page];
    link(group, node);
    if (groups_[group].windowed) return;
    for (node = nodes_[node].parent; listed(node, group); node = nodes_[node].parent) {
        unlink(group, node);
        link(group, node);
    }
}

void Tree::busy(std::int32_t group, PageId page) {
    unlink(group, groups_[group].node_of_page[page]);
}

void Tree::link(std::int32_t group, NodeId node) {
    ++clock_.work;
    Place& end = place(kNoNode, group);
    Place& here = place(node, group);
    here.prev = end.prev;
    here.next = kNoNode;
    place(end.prev, group).next = node;
    end.prev = node;
    ++groups_[group].listed;
}

void Tree::unlink(std::int32_t group, NodeId node) {
    Place& here = place(node, group);
    place(here.prev, group).next = here.next;
    place(here.next, group).prev = here.prev;
    here.prev = here.next = kUnlisted;
    --groups_[group].listed;
}

void Tree::evict(std::int32_t group) {
    const NodeId node = place(kNoNode, group).next;
    assert(node != kNoNode);
    unlink(group, node);
    Place& here = place(node, group);
    const PageId page = std::exchange(here.page, kNullPage);
    groups_[group].node_of_page[page] = kNoNode;
    groups_[group].pool->uncache(page);
    remove_unused(node);
}

std::string Tree::broken_invariant() const {
    for (std::int32_t g = 0; g < count(); ++g) {
        std::vector<std::int32_t> position(nodes_.size(), 0);
        std::int32_t length = 0;
        for (NodeId at = place(kNoNode, g).next; at != kNoNode; at = place(at, g).next)
            position[at] = ++length;
        if (length != groups_[g].listed) return "cache list: length";
        for (NodeId node = 1; node < to_i32(nodes_.size()); ++node) {
            const bool idle =
                holds(node, g) && groups_[g].pool->references(place(node, g).page) == 1;
            if (idle != (position[node] > 0) || idle != listed(node, g))
                return "cache list: every idle page is listed, and no other";
            const std::int32_t above = position[nodes_[node].parent];
            if (idle && !groups_[g].windowed && above > 0 && above < position[node])
                return "cache list: a prefix outlives what follows it";
        }
    }
    return {};
}

} // namespace tsscheduler
