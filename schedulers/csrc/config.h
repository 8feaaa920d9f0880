// Sizes that never change after the build.
#pragma once

#include "table.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tsscheduler {

struct CacheGroupConfig {
    std::string name;
    std::int32_t pages = 0;             // counts the null page
    std::optional<std::int32_t> window; // tokens that a query reads, its own included
    bool zero_pages = false;            // new pages are zeroed before their first use
};

struct Config {
    std::int32_t page_size = 16;
    std::int32_t max_batch = 1;
    std::int32_t max_model_len = 1;
    std::int32_t token_budget = 1;
    std::vector<CacheGroupConfig> groups;
    std::int32_t tokens_per_step = 1; // rows of a decode: 1, or drafts + 1
    std::int32_t host_pages = 0;      // pages of host memory a group, for retracted requests
    bool prefix_cache = true;
    double watermark = 0.01;            // share of a pool that an admission leaves free
    std::int32_t ageing = 64;           // steps of waiting that one unit of priority is worth
    std::int32_t prefix_hash_bits = 32; // fewer make prefixes collide, for tests

    // The first thing that is wrong, with both values; empty if nothing is.
    [[nodiscard]] std::string problem() const;

    // Pages that `positions` tokens take in a group without a window.
    [[nodiscard]] std::int32_t pages_for(std::int32_t positions) const {
        return ceil_div(positions, page_size);
    }

    // Pages that one request can hold at once in `group` while it computes `positions` tokens.
    [[nodiscard]] std::int32_t peak_pages(std::int32_t group, std::int32_t positions) const;

    // The first page that a query at `position` reads.
    [[nodiscard]] std::int32_t first_page(std::int32_t group, std::int32_t position) const {
        const auto& window = groups[group].window;
        return window && position + 1 > *window ? (position + 1 - *window) / page_size : 0;
    }

    // The position after `position` at which first_page() next moves.
    [[nodiscard]] std::int32_t next_slide(std::int32_t group, std::int32_t position) const {
        const auto& window = groups[group].window;
        if (!window) return std::numeric_limits<std::int32_t>::max();
        return (first_page(group, position) + 1) * page_size + *window - 1;
    }

    // Pages of `group` that an admission leaves free while others run.
    [[nodiscard]] std::int32_t watermark_pages(std::int32_t group) const;
};

} // namespace tsscheduler
