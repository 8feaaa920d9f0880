// The scheduler: decides what each step computes, and owns every page and slot.
#pragma once

#include "config.h"
#include "flight.h"
#include "plan.h"
#include "queues.h"

#include <memory>
#include <span>
#include <string>

namespace tsscheduler {

struct Stats {
    std::int32_t waiting = 0;
    std::int32_t running = 0;
    std::vector<std::int32_t> free_pages;
    std::vector<std::int32_t> cached_pages;
    std::int64_t retractions = 0;
};

// What a client asks for.
struct Submission {
    std::span<const TokenId> tokens;
    std::int32_t max_new_tokens = 0;
    std::int32_t priority = 0; // lower runs earlier
    std::int64_t salt = 0;     // prompts of different salts share no cached page
};

// What the device says about one step, one entry a token.
struct Results {
    std::span<const std::int32_t> slots;
    std::span<const TokenId> tokens;
    std::span<const bool> finished;
};

// Not thread-safe: one thread owns it. Functions that return a text return what is wrong, and then
// nothing has changed; an empty text is success.
class Scheduler {
  public:
    // `config.problem()` must be empty.
    explicit Scheduler(Config config);

    // Why such a request could never run.
    [[nodiscard]] std::string refusal(const Submission& submission) const;

    // Requires an empty refusal().
    Handle submit(const Submission& submission);

    [[nodiscard]] std::shared_ptr<const Plan> plan();

    [[nodiscard]] std::string commit(Step step, const Results& results);

    bool abort(Handle handle);

    [[nodiscard]] Stats stats() const;

    // The first invariant that does not hold; walks everything, for tests.
    [[nodiscard]] std::string broken_invariant();

    [[nodiscard]] const Config& config() const { return config_; }

  private:
    struct Draft;
    enum class Room { taken, later, lost };

    // planning.cpp
    std::shared_ptr<Plan> blank_plan();
    [[nodiscard]] std::int32_t ready_rows(Request& request) const;
    [[nodiscard]] std::int32_t decode_rows() const;
    void plan_running(Draft& draft);
    void plan_chunks(Draft& draft);
    void admit(Draft& draft);
    void place(Draft& draft, Request& request);
    [[nodiscard]] bool fits(const Request& request) const;
    Room make_room(Draft& draft, Request& request, std::int32_t end);
    [[nodiscard]] std::int32_t missing(const Table& table, std::int32_t end) const;
    void grow(Table& table, Pool& pool, std::int32_t end) const;
    void retract(Draft& draft, Request& request);
    void emit(Draft& draft, Request& request, std::int32_t rows, bool sample);
    void emit_group(GroupPlan& plan, Table& table, SlotId slot, std::int32_t begin,
                    std::int32_t end) const;
    [[nodiscard]] EmptyReason why_empty() const;

    // commit.cpp
    [[nodiscard]] std::string check_results(Step step, const Results& results);
    [[nodiscard]] std::string check_entry(Step step, std::size_t index, const Results& results);
    void apply(const Entry& entry, std::size_t first, std::int32_t count, const Results& results);
    void settle(Request& request);
    template <class Event> void end(Request& request, Event event);

    Config config_;
    Clock clock_;
    std::vector<std::unique_ptr<Pool>> pools_;
    SlotPool slots_;
    Requests requests_;
    WaitingQueue waiting_;
    Running running_;
    Flight flight_;
    std::vector<std::shared_ptr<Plan>> plans_;
    std::vector<std::size_t> first_;   // [sequences of the step] index of its first result
    std::vector<std::int32_t> counts_; // [sequences of the step] results seen
    std::uint64_t arrivals_ = 0;
    std::int64_t retractions_ = 0;
};

} // namespace tsscheduler
