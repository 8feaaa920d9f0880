// Committing a step: the results are checked whole, then applied.
#include "scheduler.h"

namespace tsscheduler {

std::string Scheduler::commit(Step step, const Results& results) {
    if (auto text = check_results(step, results); !text.empty()) return text;
    clock_.committed = step;
    const std::vector<Entry>& entries = flight_[step].entries;
    for (std::size_t row = 0; row < entries.size(); ++row) {
        if (row + 4 < entries.size()) requests_.prefetch(entries[row + 4].handle);
        apply(entries[row], first_[row], counts_[row], results);
    }
    cache_.pass(step);
    slots_.pass(step);
    return {};
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
    const std::vector<Entry>& entries = flight_[step].entries;
    first_.assign(entries.size(), 0);
    counts_.assign(entries.size(), 0);
    for (std::size_t i = 0; i < results.slots.size(); ++i)
        if (const Fault fault = check_entry(flight_[step], i, results); fault != Fault::none)
            return name + ": " + describe(fault, i, results);
    for (std::size_t row = 0; row < entries.size(); ++row)
        if (entries[row].most > 0 && counts_[row] == 0 && requests_.find(entries[row].handle))
            return name + ": no token for slot " + std::to_string(entries[row].slot);
    return {};
}

Scheduler::Fault Scheduler::check_entry(const StepRecord& record, std::size_t index,
                                        const Results& results) {
    const SlotId slot = results.slots[index];
    const bool known = slot >= 0 && slot < config_.max_batch && record.entry_of_slot[slot] >= 0;
    if (!known) return Fault::unknown;
    const std::int32_t row = record.entry_of_slot[slot];
    if (record.entries[row].most == 0) return Fault::samples_nothing;
    if (results.tokens[index] < 0) return Fault::negative;
    if (counts_[row] == 0) first_[row] = index;
    if (first_[row] + static_cast<std::size_t>(counts_[row]) != index) return Fault::apart;
    if (++counts_[row] > record.entries[row].most) return Fault::too_many;
    if (counts_[row] > 1 && results.finished[index - 1]) return Fault::after_the_last;
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

void Scheduler::apply(const Entry& entry, std::size_t first, std::int32_t count,
                      const Results& results) {
    ++clock_.work;
    Request* request = requests_.find(entry.handle);
    if (request == nullptr) return; // aborted or finished since: its late token is dropped
    --request->steps_in_flight;
    request->pending -= entry.most;
    for (std::int32_t i = 0; i < count; ++i)
        request->append(results.tokens[first + static_cast<std::size_t>(i)]);
    // Rows whose draft was not taken are computed again.
    const std::int32_t committed = entry.end - std::max(0, entry.most - count);
    if (entry.most == 0)
        dispatch(request->state, Chunk{committed});
    else
        dispatch(request->state, Token{committed});
    if (Residence* home = request->home()) {
        if (entry.most > 1) home->planned = committed;
        cache_.settle(*home, *request);
    }
    const bool stop = count > 0 && results.finished[first + static_cast<std::size_t>(count) - 1];
    if (stop || request->remaining_to_commit() == 0) end(*request, Finish{});
}

} // namespace tsscheduler
