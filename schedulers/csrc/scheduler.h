// The scheduler: decides what each step computes.
#pragma once

#include "cache.h"
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
    std::vector<std::int32_t> host_free_pages; // empty without host pages
    std::vector<std::int32_t> host_cached_pages;
    std::int64_t retractions = 0;
    std::int64_t work = 0;
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

    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // Why such a request could never run.
    [[nodiscard]] std::string refusal(const Submission& submission) const;

    // Requires an empty refusal().
    Handle submit(const Submission& submission);

    // Why such a fork could never run; `parent` must be live.
    [[nodiscard]] std::string fork_refusal(Handle parent, std::int32_t max_new_tokens);

    // A request that goes on from the parent's committed tokens. Requires an empty fork_refusal().
    Handle fork(Handle parent, std::int32_t max_new_tokens);

    [[nodiscard]] std::shared_ptr<const Plan> plan();

    [[nodiscard]] std::string commit(Step step, const Results& results);

    bool abort(Handle handle);

    [[nodiscard]] std::string transfer_done(TicketId ticket, bool ok);

    [[nodiscard]] Stats stats() const;

    // The first invariant that does not hold; walks everything, for tests.
    [[nodiscard]] std::string broken_invariant();

  private:
    struct Draft;
    enum class Room { taken, later, lost };
    enum class Fault { none, unknown, samples_nothing, negative, apart, too_many, after_the_last };

    // A sequence's part of the results.
    struct Share {
        std::uint32_t first;
        std::int32_t count;
    };

    // The admission that failed last. It cannot succeed before there is more room than this, less
    // what was published since.
    struct Blocked {
        Handle handle;
        std::int32_t group;
        std::int32_t need;
        std::int64_t published;
    };

    // planning.cpp
    std::shared_ptr<Plan> blank_plan();
    [[nodiscard]] std::int32_t ready_rows(Request& request) const;
    void reserve_decodes(Draft& draft, std::int32_t from);
    void prefetch(std::int32_t index) const;
    std::int32_t plan_steady(Draft& draft, std::int32_t from);
    void plan_running(Draft& draft);
    void plan_chunks(Draft& draft);
    Room make_room(Draft& draft, Request& request, std::int32_t end);
    void retract(Draft& draft, Request& request);
    void emit(Draft& draft, Request& request, std::int32_t rows, bool sample);
    static void emit_tokens(Plan& plan, const Request& request, std::int32_t begin,
                            std::int32_t end);
    void emit_group(GroupPlan& plan, std::int32_t group, Residence& home, std::int32_t end) const;
    [[nodiscard]] EmptyReason why_empty() const;

    // admission.cpp
    void admit(Draft& draft);
    [[nodiscard]] bool may_fit(const Request& request) const;
    [[nodiscard]] bool fits(const Request& request, const Hit& hit);
    void place(Draft& draft, Request& request, const Hit& hit);
    void begin_load(Draft& draft, Request& request, Residence home, const Hit& hit);
    void begin_prefill(Draft& draft, Request& request, Residence home);
    [[nodiscard]] std::int32_t returning(std::int32_t group);

    // commit.cpp
    void prefetch(std::span<const Entry> entries, std::size_t row);
    [[nodiscard]] std::string check_results(Step step, const Results& results);
    [[nodiscard]] bool in_order(std::span<const Entry> entries, const Results& results);
    [[nodiscard]] std::string check_each(Step step, const Results& results);
    [[nodiscard]] Fault check_entry(std::span<const Entry> entries, std::size_t index,
                                    const Results& results);
    [[nodiscard]] static std::string describe(Fault fault, std::size_t index,
                                              const Results& results);
    void apply(const Entry& entry, Share share, const Results& results);
    template <class Event> void end(Request& request, Event event);

    Config config_;
    Clock clock_;
    Cache cache_;
    SlotPool slots_;
    Transfers transfers_;
    Requests requests_;
    WaitingQueue waiting_; // also those that are Storing: nobody passes them
    Running running_;      // Prefilling or Decoding
    std::int32_t loading_ = 0;
    Flight flight_;
    std::optional<Blocked> blocked_;
    std::vector<std::shared_ptr<Plan>> plans_;
    std::vector<Share> shares_;      // [max_batch] of the step's sequences, in their order
    std::vector<std::int32_t> rows_; // [max_batch] the sequence of a slot, -1 if there is none
    std::uint64_t arrivals_ = 0;
    std::int64_t retractions_ = 0;
};

} // namespace tsscheduler
