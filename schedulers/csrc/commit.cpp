// Committing a step: the results are checked whole, then applied.
#include "scheduler.h"

namespace tsscheduler {

// Requests whose memory is asked for ahead of their turn, and then what that points to.
constexpr std::size_t kAhead = 6;

std::string Scheduler::commit(Step step, const Results& results) {
    if (auto text = check_results(step, results); !text.empty()) return text;
    clock_.committed = step;
    const std::span<const Entry> entries = flight_[step].entries();
    for (std::size_t row = 0; row < entries.size(); ++row) {
        prefetch(entries, row);
        apply(entries[row], shares_[row], results);
    }
    clock_.work += to_i32(entries.size());
    cache_.pass(step);
    slots_.pass(step);
    return {};
}

// What settling touches lies scattered, the further apart the longer the contexts.
void Scheduler::prefetch(std::span<const Entry> entries, std::size_t row) {
    if (row + 3 * kAhead < entries.size()) entries[row + 3 * kAhead].request->prefetch();
    for (std::size_t ahead : {2 * kAhead, kAhead}) {
        if (row + ahead >= entries.size()) continue;
        const Request& request = *entries[row + ahead].request;
        const auto* decoding = std::get_if<Decoding>(&request.state);
        if (decoding == nullptr || entries[row + ahead].end < decoding->home.settle_at) continue;
        if (ahead == kAhead)
            cache_.prefetch(decoding->home, request);
        else
            decoding->home.tables.prefetch();
    }
}

std::string Scheduler::check_results(Step step, const Results& results) {
    const std::string name = "step " + std::to_string(step);
    if (clock_.in_flight() == 0) return name + ": no step is in flight";
    if (step != clock_.committed + 1)
        return name + ": the oldest step in flight is " + std::to_string(clock_.committed + 1);
    if (results.slots.size() != results.tokens.size() ||
        results.slots.size() != results.finished.size())
        return name + ": " + std::to_string(results.slots.size()) + " slots, " +
               std::to_string(results.tokens.size()) + " tokens and " +
               std::to_string(results.finished.size()) + " finished must be equally many";
    if (in_order(flight_[step].entries(), results)) return {};
    const std::string text = check_each(step, results);
    return text.empty() ? text : name + ": " + text;
}

// Whether nothing is wrong and the results stand in the order of the plan, all of them being there,
// as mostly. Then there is nothing to look up.
bool Scheduler::in_order(std::span<const Entry> entries, const Results& results) {
    std::size_t next = 0;
    for (std::size_t row = 0; row < entries.size(); ++row) {
        const Entry& entry = entries[row];
        const std::size_t first = next;
        while (next < results.slots.size() && results.slots[next] == entry.slot) {
            if (results.tokens[next] < 0) return false;
            if (next > first && results.finished[next - 1]) return false;
            ++next;
        }
        const auto count = static_cast<std::int32_t>(next - first);
        if (count > entry.most || (count == 0 && entry.most > 0)) return false;
        shares_[row] = {static_cast<std::uint32_t>(first), count};
    }
    return next == results.slots.size();
}

std::string Scheduler::check_each(Step step, const Results& results) {
    const std::span<const Entry> entries = flight_[step].entries();
    std::ranges::fill(rows_, -1);
    for (std::size_t row = 0; row < entries.size(); ++row) {
        assert(rows_[entries[row].slot] == -1);
        rows_[entries[row].slot] = to_i32(row);
        shares_[row] = {0, 0};
    }
    for (std::size_t i = 0; i < results.slots.size(); ++i)
        if (const Fault fault = check_entry(entries, i, results); fault != Fault::none)
            return describe(fault, i, results);
    for (std::size_t row = 0; row < entries.size(); ++row) {
        const Entry& entry = entries[row];
        if (entry.most > 0 && shares_[row].count == 0 &&
            Requests::current(*entry.request, entry.generation) != nullptr)
            return "no token for slot " + std::to_string(entry.slot);
    }
    return {};
}

Scheduler::Fault Scheduler::check_entry(std::span<const Entry> entries, std::size_t index,
                                        const Results& results) {
    const SlotId slot = results.slots[index];
    if (slot < 0 || slot >= config_.max_batch || rows_[slot] < 0) return Fault::unknown;
    const Entry& entry = entries[static_cast<std::size_t>(rows_[slot])];
    Share& share = shares_[static_cast<std::size_t>(rows_[slot])];
    if (entry.most == 0) return Fault::samples_nothing;
    if (results.tokens[index] < 0) return Fault::negative;
    if (share.count == 0) share.first = static_cast<std::uint32_t>(index);
    if (share.first + static_cast<std::size_t>(share.count) != index) return Fault::apart;
    if (++share.count > entry.most) return Fault::too_many;
    if (share.count > 1 && results.finished[index - 1]) return Fault::after_the_last;
    return Fault::none;
}

std::string Scheduler::describe(Fault fault, std::size_t index, const Results& results) {
    const std::string slot = "slot " + std::to_string(results.slots[index]);
    switch (fault) {
    case Fault::none:
        return {};
    case Fault::unknown:
        return slot + " is not in the step";
    case Fault::samples_nothing:
        return slot + " samples no token in this step";
    case Fault::negative:
        return slot + ": token " + std::to_string(results.tokens[index]) + " is negative";
    case Fault::apart:
        return slot + ": its tokens do not stand together";
    case Fault::too_many:
        return slot + " yields fewer tokens in this step";
    case Fault::after_the_last:
        return slot + ": a token follows its last one";
    }
    return {};
}

void Scheduler::apply(const Entry& entry, Share share, const Results& results) {
    Request* request = Requests::current(*entry.request, entry.generation);
    if (request == nullptr) return; // aborted or finished since: its late token is dropped
    --request->steps_in_flight;
    request->pending -= entry.most;
    for (std::int32_t i = 0; i < share.count; ++i)
        request->tokens.append(results.tokens[share.first + static_cast<std::uint32_t>(i)]);
    // Rows whose draft was not taken are computed again.
    const std::int32_t committed = entry.end - std::max(0, entry.most - share.count);
    if (auto* decoding = std::get_if<Decoding>(&request->state))
        transition(*decoding, Token{committed}); // a decode always samples
    else if (entry.most == 0)
        dispatch(request->state, Chunk{committed});
    else
        dispatch(request->state, Token{committed});
    if (Residence* home = request->home()) {
        if (entry.most > 1) home->planned = committed;
        if (committed >= home->settle_at) cache_.settle(*home, *request);
    }
    const bool stop = share.count > 0 &&
                      results.finished[share.first + static_cast<std::uint32_t>(share.count) - 1];
    if (stop || request->remaining_to_commit() == 0) end(*request, Finish{});
}

} // namespace tsscheduler
