// The list of what each multiprocessor computes in a step: tiles of rows, for one head each.
//
// It is made on the host, from the step's lengths alone, and knows nothing of a GPU.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ts_fa3 {

constexpr int32_t kBlockRows = 128;
constexpr int32_t kBlockKeys = 128;
constexpr int32_t kHeadsTogether = 16;
constexpr int64_t kAlignment = 16;

// The sizes of a program: how many rows and sequences its largest step has.
struct Bucket {
    int64_t rows;
    int64_t sequences;
    int64_t heads;

    int64_t most_tiles() const {
        return ((rows + kBlockRows - 1) / kBlockRows + sequences - 1) * heads;
    }
};

// Where each array of the list starts: seven of one entry a tile, and the blocks' shares of them.
struct Places {
    int64_t tile, row, table, rows, keys, head, sequence, share, end;
};

inline int64_t rounded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

inline Places places(const Bucket& bucket, int64_t processors) {
    const int64_t list = rounded(sizeof(int32_t) * bucket.most_tiles());
    const int64_t shares = rounded(sizeof(int32_t) * (processors + 1));
    return {0, list, 2 * list, 3 * list, 4 * list, 5 * list, 6 * list, 7 * list, 7 * list + shares};
}

// What a block computes at a time, for one head.
struct Tile {
    int32_t sequence;
    int32_t tile;
    int32_t row;
    int32_t rows;
    int32_t keys;

    // In blocks of keys; to begin and to end a tile takes about as long as two.
    int64_t cost() const {
        const int64_t seen = std::min(keys, keys - rows + (tile + 1) * kBlockRows);
        return (seen + kBlockKeys - 1) / kBlockKeys + 2;
    }
};

// The tiles of every sequence with more than one row, costly ones first.
inline std::vector<Tile> tiles_of(const int32_t* keys, const int32_t* starts, int64_t sequences) {
    std::vector<Tile> found;
    for (int32_t i = 0; i < sequences; ++i) {
        const int32_t rows = starts[i + 1] - starts[i];
        if (rows < 2) continue;
        for (int32_t tile = 0; tile * kBlockRows < rows; ++tile) {
            found.push_back({i, tile, starts[i], rows, keys[i]});
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Tile& a, const Tile& b) { return a.cost() > b.cost(); });
    return found;
}

// A tile of the step for one head, and the multiprocessor that computes it.
struct Work {
    const Tile* tile;
    int32_t head;
    int32_t owner;
};

// Every tile for every head goes to the multiprocessor that has least to do so far. Some heads go
// together, so that their small tiles even out what their large ones left, and not all of them,
// so that those in hand read the same keys.
inline std::vector<Work> shared_out(const std::vector<Tile>& tiles, int32_t heads,
                                    int32_t processors) {
    using Load = std::pair<int64_t, int32_t>;
    std::vector<Load> idle;
    for (int32_t i = 0; i < processors; ++i)
        idle.emplace_back(0, i);
    std::priority_queue<Load, std::vector<Load>, std::greater<>> least({}, std::move(idle));
    std::vector<Work> found;
    found.reserve(tiles.size() * heads);
    for (int32_t first = 0; first < heads; first += kHeadsTogether) {
        for (const Tile& tile : tiles) {
            for (int32_t head = first; head < std::min(first + kHeadsTogether, heads); ++head) {
                const auto [load, owner] = least.top();
                least.pop();
                least.emplace(load + tile.cost(), owner);
                found.push_back({&tile, head, owner});
            }
        }
    }
    return found;
}

// Write the list of a step into `list`, which is laid out as `place` says.
inline void write_list(const int32_t* keys, const int32_t* starts, const Bucket& bucket,
                       int64_t pages, int32_t processors, const Places& place, char* list) {
    const std::vector<Tile> tiles = tiles_of(keys, starts, bucket.sequences);
    if (static_cast<int64_t>(tiles.size()) * bucket.heads > bucket.most_tiles()) {
        throw std::runtime_error("the step has more rows than the program");
    }
    const auto works = shared_out(tiles, static_cast<int32_t>(bucket.heads), processors);
    const auto array = [&](int64_t offset) { return reinterpret_cast<int32_t*>(list + offset); };
    int32_t* shares = array(place.share);
    std::fill_n(shares, processors + 1, 0);
    for (const Work& work : works)
        ++shares[work.owner + 1];
    std::partial_sum(shares, shares + processors + 1, shares);
    std::vector<int32_t> next(shares, shares + processors);
    for (const Work& work : works) {
        const int32_t to = next[work.owner]++;
        array(place.tile)[to] = work.tile->tile;
        array(place.row)[to] = work.tile->row;
        array(place.table)[to] = static_cast<int32_t>(work.tile->sequence * pages);
        array(place.rows)[to] = work.tile->rows;
        array(place.keys)[to] = work.tile->keys;
        array(place.head)[to] = work.head;
        array(place.sequence)[to] = work.tile->sequence;
    }
}

} // namespace ts_fa3
