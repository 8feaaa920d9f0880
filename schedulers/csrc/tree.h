// The prefix cache: a radix tree with an edge a page, its root salted per tenant or adapter.
#pragma once

#include "child_index.h"
#include "table.h"

#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tsscheduler {

class Tree;

// Keeps a node (not its pages) while somebody stands on it.
class Anchor {
  public:
    Anchor() = default;
    inline Anchor(Tree& tree, NodeId node);

    Anchor(Anchor&& other) noexcept
        : tree_(std::exchange(other.tree_, nullptr)), node_(std::exchange(other.node_, kNoNode)) {}

    Anchor& operator=(Anchor&& other) noexcept {
        std::swap(tree_, other.tree_);
        std::swap(node_, other.node_);
        return *this;
    }

    Anchor(const Anchor&) = delete;
    Anchor& operator=(const Anchor&) = delete;
    inline ~Anchor();

    [[nodiscard]] NodeId node() const { return node_; }

  private:
    Tree* tree_ = nullptr;
    NodeId node_ = kNoNode;
};

// A node stands for a whole page of tokens after its parent's; it may hold one page a cache group.
// A page that only the tree refers to is idle. Idle pages stand in one list a group, least recently
// used first; in a group without a window a page stands behind those of its children that are idle,
// so that leaves go before what they need to be found.
class Tree final : public PageListener {
  public:
    struct Group {
        Pool* pool;
        bool windowed;
    };

    // `hash_bits` below 32 makes prefixes collide, for tests.
    Tree(std::vector<Group> groups, std::int32_t page_size, std::int32_t hash_bits,
         const Clock& clock);

    Tree(const Tree&) = delete;
    Tree& operator=(const Tree&) = delete;

    // The salt's root, made if there is none; whoever asks for it anchors it or extends it.
    NodeId root(std::int64_t salt);

    // kNoNode if there is none.
    [[nodiscard]] NodeId find_root(std::int64_t salt) const;
    [[nodiscard]] NodeId child(NodeId parent, std::span<const TokenId> tokens) const;

    [[nodiscard]] NodeId parent(NodeId node) const { return nodes_[node].parent; }

    // The child, made if there is none.
    NodeId extend(NodeId parent, std::span<const TokenId> tokens);

    [[nodiscard]] bool holds(NodeId node, std::int32_t group) const {
        return place(node, group).page != kNullPage;
    }

    // Asks for the memory of a node.
    void prefetch(NodeId node) const {
        __builtin_prefetch(&nodes_[node], 1);
        __builtin_prefetch(&places_[static_cast<std::size_t>(node) * groups_.size()], 1);
    }

    // Whether the page could be evicted.
    [[nodiscard]] bool listed(NodeId node, std::int32_t group) const {
        return place(node, group).next != kUnlisted;
    }

    [[nodiscard]] SealedPage share(NodeId node, std::int32_t group);

    // Requires that the node holds no page of this group.
    void adopt(NodeId node, std::int32_t group, SealedPage&& page);

    // Pages ever adopted.
    [[nodiscard]] std::int64_t adopted() const { return adopted_; }

    [[nodiscard]] std::int32_t nodes() const { return to_i32(nodes_.size() - free_.size()) - 1; }

    void idle(std::int32_t group, PageId page) override;
    void busy(std::int32_t group, PageId page) override;
    void evict(std::int32_t group) override;

    // Calls visit(group, page) for every page that the tree refers to.
    template <class Visit> void for_each_page(Visit&& visit) const {
        for (NodeId node = 1; node < to_i32(nodes_.size()); ++node)
            for (std::int32_t g = 0; g < count(); ++g)
                if (holds(node, g)) visit(g, place(node, g).page);
    }

    // Empty if the lists and counters are what a recount gives.
    [[nodiscard]] std::string broken_invariant() const;

  private:
    friend class Anchor;

    static constexpr NodeId kUnlisted = -1;

    struct Node {
        NodeId parent = kNoNode;
        NodeId child = kNoNode;  // mostly the only one
        std::int32_t others = 0; // children that the index names
        std::int32_t anchors = 0;
        std::uint32_t hash = 0; // if the index names it

        [[nodiscard]] bool unused() const {
            return child == kNoNode && others == 0 && anchors == 0;
        }
    };

    struct Place {
        PageId page = kNullPage;
        NodeId prev = kUnlisted;
        NodeId next = kUnlisted;
    };

    struct GroupState {
        Pool* pool;
        bool windowed;
        std::int32_t listed = 0;
        std::vector<NodeId> node_of_page{};
    };

    [[nodiscard]] std::int32_t count() const { return to_i32(groups_.size()); }

    Place& place(NodeId node, std::int32_t group) {
        return places_[static_cast<std::size_t>(node) * groups_.size() +
                       static_cast<std::size_t>(group)];
    }

    [[nodiscard]] const Place& place(NodeId node, std::int32_t group) const {
        return const_cast<Tree*>(this)->place(node, group);
    }

    [[nodiscard]] std::span<const TokenId> tokens(NodeId node) const {
        const auto size = static_cast<std::size_t>(page_size_);
        return {tokens_.data() + static_cast<std::size_t>(node) * size, size};
    }

    [[nodiscard]] std::uint32_t hash(NodeId parent, std::span<const TokenId> tokens) const;
    [[nodiscard]] bool says(NodeId node, std::span<const TokenId> tokens) const;
    [[nodiscard]] NodeId find(std::uint32_t hash, NodeId parent,
                              std::span<const TokenId> tokens) const;
    NodeId add(NodeId parent);
    void remove_unused(NodeId node);
    void drop_child(NodeId parent, NodeId node);
    void link(std::int32_t group, NodeId node);
    void unlink(std::int32_t group, NodeId node);

    const Clock& clock_;
    std::vector<GroupState> groups_;
    std::int32_t page_size_;
    std::uint32_t hash_mask_;
    std::int64_t adopted_ = 0;
    std::vector<Node> nodes_;     // [0] stands for no node and for the lists' ends
    std::vector<Place> places_;   // [nodes, groups]
    std::vector<TokenId> tokens_; // [nodes, page_size]
    std::vector<NodeId> free_;
    ChildIndex others_; // children beyond their parent's `child`
    std::unordered_map<std::int64_t, NodeId> roots_;
    std::unordered_map<NodeId, std::int64_t> salts_;
};

inline Anchor::Anchor(Tree& tree, NodeId node) : tree_(&tree), node_(node) {
    ++tree.nodes_[node].anchors;
}

inline Anchor::~Anchor() {
    if (tree_ == nullptr) return;
    --tree_->nodes_[node_].anchors;
    tree_->remove_unused(node_);
}

} // namespace tsscheduler
