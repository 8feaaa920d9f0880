// libFuzzer: any bytes are a configuration and a sequence of calls. After each call all invariants
// must hold; the core's assertions are on.
#include "scheduler.h"

#include <cstdio>
#include <cstdlib>
#include <deque>

using namespace tsscheduler;

namespace {

class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    [[nodiscard]] bool empty() const { return size_ == 0; }

    // 0 to limit - 1
    std::int32_t below(std::int32_t limit) {
        if (size_ == 0) return 0;
        --size_;
        return *data_++ % limit;
    }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
};

Config config(Bytes& bytes) {
    Config config;
    config.page_size = 1 << bytes.below(3);
    config.max_batch = 1 + bytes.below(4);
    config.max_model_len = 2 + bytes.below(30);
    config.tokens_per_step = 1 + bytes.below(3);
    config.token_budget =
        config.max_batch * config.tokens_per_step + config.page_size + bytes.below(12);
    config.host_pages = bytes.below(2) * bytes.below(12);
    config.prefix_cache = bytes.below(4) != 0;
    config.watermark = bytes.below(2) * 0.2;
    config.ageing = 1 + bytes.below(8);
    config.prefix_hash_bits = bytes.below(2) * 32;
    const std::int32_t groups = 1 + bytes.below(3);
    for (std::int32_t g = 0; g < groups; ++g) {
        CacheGroupConfig group{.name = std::to_string(g), .pages = 2 + bytes.below(40)};
        if (bytes.below(2) == 1) group.window = 2 + bytes.below(10);
        group.zero_pages = bytes.below(2) == 1;
        config.groups.push_back(group);
    }
    return config;
}

struct Planned {
    Step step;
    std::vector<std::int32_t> slots;
};

class Driver {
  public:
    Driver(Config config, Bytes& bytes) : bytes_(bytes), scheduler_(std::move(config)) {}

    void run() {
        while (!bytes_.empty()) {
            step();
            const std::string broken = scheduler_.broken_invariant();
            if (broken.empty()) continue;
            std::fprintf(stderr, "invariant: %s\n", broken.c_str());
            std::abort();
        }
    }

  private:
    void step() {
        switch (bytes_.below(8)) {
        case 0:
            return submit();
        case 1:
        case 2:
            return plan();
        case 3:
        case 4:
            return commit();
        case 5:
            scheduler_.abort(handle());
            return;
        case 6:
            return fork();
        case 7:
            (void)scheduler_.transfer_done(1 + bytes_.below(16), bytes_.below(3) != 0);
            return;
        default:
            return;
        }
    }

    Handle handle() {
        if (handles_.empty()) return {};
        return handles_[bytes_.below(static_cast<std::int32_t>(handles_.size()))];
    }

    void submit() {
        std::vector<TokenId> tokens(static_cast<std::size_t>(bytes_.below(32)), 1);
        if (!tokens.empty())
            tokens[tokens.size() / 2] = bytes_.below(3) - 1 + (bytes_.below(9) != 0);
        const Submission submission{tokens, bytes_.below(12), bytes_.below(3) - 1, bytes_.below(2)};
        if (scheduler_.refusal(submission).empty())
            handles_.push_back(scheduler_.submit(submission));
    }

    void fork() {
        const Handle parent = handle();
        const std::int32_t tokens = bytes_.below(12);
        if (scheduler_.fork_refusal(parent, tokens).empty())
            handles_.push_back(scheduler_.fork(parent, tokens));
    }

    void plan() {
        const auto plan = scheduler_.plan();
        if (plan->empty()) return;
        Planned planned{plan->step, {}};
        for (std::size_t i = 0; i < plan->slots.size(); ++i)
            if (plan->samples[i] != 0) planned.slots.push_back(plan->slots[i]);
        flight_.push_back(planned);
    }

    // Mostly right, sometimes wrong in any way.
    void commit() {
        if (flight_.empty()) return;
        Planned planned = flight_[0];
        if (bytes_.below(8) == 0) planned.step += bytes_.below(3) - 1;
        if (bytes_.below(8) == 0) planned.slots.push_back(bytes_.below(6) - 1);
        if (bytes_.below(8) == 0 && !planned.slots.empty()) planned.slots.pop_back();
        std::vector<TokenId> tokens;
        std::array<bool, 64> finished{};
        for (std::size_t i = 0; i < planned.slots.size(); ++i) {
            tokens.push_back(bytes_.below(16) - (bytes_.below(32) == 0 ? 16 : 0));
            finished[i] = bytes_.below(8) == 0;
        }
        const Results results{planned.slots, tokens, {finished.data(), planned.slots.size()}};
        if (scheduler_.commit(planned.step, results).empty()) flight_.pop_front();
    }

    Bytes& bytes_;
    Scheduler scheduler_;
    std::vector<Handle> handles_;
    std::deque<Planned> flight_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes bytes(data, size);
    Config made = config(bytes);
    if (!made.problem().empty()) return 0;
    Driver(std::move(made), bytes).run();
    return 0;
}
