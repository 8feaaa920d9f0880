// Planning a step: one pass over the running requests in their order, then admissions.
#include "columns.h"
#include "draft.h"

#include <numeric>

namespace tsscheduler {

// Requests whose memory is asked for ahead of their turn, and then what that points to.
constexpr std::int32_t kAhead = 6;

std::shared_ptr<const Plan> Scheduler::plan() {
    std::shared_ptr<Plan> plan = blank_plan();
    if (clock_.in_flight() == kMaxInFlight) {
        plan->reason = EmptyReason::in_flight;
        return plan;
    }
    const Step step = clock_.planned + 1;
    StepRecord& record = flight_[step];
    record.clear();
    Draft draft{.step = step, .plan = *plan, .record = record};
    draft.prefill_budget = config_.token_budget;
    plan_running(draft);
    plan_chunks(draft);
    if (!draft.pressed) admit(draft);
    if (plan->empty()) {
        plan->reason = why_empty();
    } else {
        plan->step = step;
        clock_.planned = step;
    }
    return plan;
}

EmptyReason Scheduler::why_empty() const {
    if (requests_.live() == 0) return EmptyReason::idle;
    return clock_.in_flight() > 0 ? EmptyReason::in_flight : EmptyReason::waiting_transfer;
}

// A plan that nobody reads any more, or a new one.
std::shared_ptr<Plan> Scheduler::blank_plan() {
    for (const auto& plan : plans_)
        if (plan.use_count() == 1) {
            plan->clear();
            return plan;
        }
    plans_.push_back(std::make_shared<Plan>());
    plans_.back()->groups.resize(config_.groups.size());
    plans_.back()->clear();
    return plans_.back();
}

// Rows of the request's next decode; 0 if it is not its turn.
std::int32_t Scheduler::ready_rows(Request& request) const {
    if (request.unplanned_prefill() > 0 || request.remaining() == 0) return 0;
    // Several tokens a step: how far it got is known only at the commit.
    if (config_.tokens_per_step > 1 && request.pending > 0) return 0;
    assert(request.home()->planned == request.known() + request.pending - 1);
    return std::min(config_.tokens_per_step, request.remaining());
}

// Takes the rows of all decodes from `from` on out of the budget, before a prefill gets any.
void Scheduler::reserve_decodes(Draft& draft, std::int32_t from) {
    if (std::exchange(draft.reserved, true)) return;
    for (std::int32_t i = from; i < running_.size(); ++i)
        draft.prefill_budget -= ready_rows(running_[i]);
}

// A request that comes to the end of its page gets another at the end of its tables.
void Scheduler::prefetch(std::int32_t index) const {
    running_.prefetch(index + 3 * kAhead);
    for (std::int32_t ahead : {2 * kAhead, kAhead}) {
        if (index + ahead >= running_.size()) continue;
        const auto* decoding = std::get_if<Decoding>(&running_[index + ahead].state);
        if (decoding == nullptr || decoding->home.planned < decoding->home.page_end) continue;
        const Tables& tables = decoding->home.tables;
        if (ahead == kAhead)
            tables.prefetch_ends();
        else
            tables.prefetch();
    }
}

// Plans decodes from `from` on, up to the first request for which there is more to do than to count
// on; returns its index. What takes time here is memory: it touches one request once, and no table.
std::int32_t Scheduler::plan_steady(Draft& draft, std::int32_t from) {
    if (config_.tokens_per_step > 1) return from;
    Columns columns(draft.plan, static_cast<std::size_t>(running_.size() - from));
    Entry* entry = draft.record.room();
    std::int32_t i = from;
    for (; i < running_.size(); ++i) {
        prefetch(i);
        Request& request = running_[i];
        auto* decoding = std::get_if<Decoding>(&request.state);
        if (decoding == nullptr || request.remaining() == 0) break;
        Residence& home = decoding->home;
        const std::int32_t position = home.planned;
        if (position >= home.page_end) break;
        const bool sampled = request.pending == 0; // else by a step in flight
        columns.write(home.slot.id(), position, sampled ? request.tokens[position] : kUnknownToken,
                      home.bases);
        *entry++ = {&request, request.handle.generation, home.slot.id(), position + 1, 1};
        home.planned = position + 1;
        home.last = draft.step;
        ++request.pending;
        ++request.steps_in_flight;
    }
    const std::int32_t rows = i - from;
    columns.finish(draft.plan);
    draft.record.advance(static_cast<std::size_t>(rows));
    draft.plan.num_decodes += rows;
    if (!draft.reserved) draft.prefill_budget -= rows;
    clock_.work += 2 * rows;
    return i;
}

void Scheduler::plan_running(Draft& draft) {
    for (std::int32_t i = 0; (i = plan_steady(draft, i)) < running_.size(); ++i) {
        ++clock_.work;
        Request& request = running_[i];
        const std::int32_t prefill = request.unplanned_prefill();
        if (prefill > 0) reserve_decodes(draft, i);
        const std::int32_t decode = prefill > 0 ? 0 : ready_rows(request);
        if (!draft.reserved) draft.prefill_budget -= decode;
        const std::int32_t rows = std::max(decode, std::min(prefill, draft.prefill_budget));
        if (rows == 0) continue;
        const Room room = make_room(draft, request, request.home()->planned + rows);
        if (room == Room::lost) return; // it was the last
        if (room == Room::later) continue;
        if (decode > 0) {
            emit(draft, request, rows, true);
            ++draft.plan.num_decodes;
        } else {
            draft.prefill_budget -= rows;
            draft.chunks.emplace_back(&request, rows);
        }
    }
}

void Scheduler::plan_chunks(Draft& draft) {
    for (const auto& [request, chunk] : draft.chunks)
        emit(draft, *request, chunk, chunk == request->unplanned_prefill());
}

// Gets the pages that the request needs to compute positions up to `end`. If there are too few,
// waits for those that are on their way back, or else retracts the last request in the order.
Scheduler::Room Scheduler::make_room(Draft& draft, Request& request, std::int32_t end) {
    while (true) {
        Tables& tables = request.home()->tables;
        if (cache_.covers(tables, end)) return Room::taken;
        bool now = true;
        bool soon = true;
        for (std::int32_t g = 0; g < cache_.groups(); ++g) {
            const std::int32_t need = cache_.missing(tables[g], end);
            if (need == 0) continue;
            const std::int32_t have = cache_.pool(g).obtainable() - draft.owed[g];
            now = now && need <= have;
            soon = soon && (need <= have || need <= have + returning(g));
        }
        if (now) {
            for (std::int32_t g = 0; g < cache_.groups(); ++g)
                cache_.grow(tables[g], g, end);
            return Room::taken;
        }
        draft.pressed = true;
        // The first in the order never goes.
        if (soon || running_.size() == 1) {
            for (std::int32_t g = 0; g < cache_.groups(); ++g)
                draft.owed[g] += cache_.missing(tables[g], end);
            return Room::later;
        }
        Request& victim = running_.last();
        retract(draft, victim);
        if (&victim == &request) return Room::lost;
    }
}

// Pages that come back without a retraction: when the steps in flight commit, when a store is done,
// or when the load of an aborted request is.
std::int32_t Scheduler::returning(std::int32_t group) {
    std::int32_t pages = cache_.pool(group).fenced();
    transfers_.for_each([&](const Ticket& ticket) {
        if (ticket.kind == Ticket::Kind::store || requests_.find(ticket.handle) == nullptr)
            pages += ticket.device[group].size();
    });
    return pages;
}

void Scheduler::retract(Draft& draft, Request& request) {
    if (draft.reserved) draft.prefill_budget += ready_rows(request);
    Retract event;
    if (auto ticket = cache_.store(*request.home(), request)) {
        const std::int32_t begin = ticket->begin;
        const std::int32_t end = ticket->end;
        const TicketId id = transfers_.add(std::move(*ticket));
        const Ticket& kept = transfers_[id];
        for (std::int32_t g = 0; g < cache_.groups(); ++g)
            for (std::int32_t i = begin; i < end; ++i)
                if (const PageId page = kept.device[g].page(i - begin); page != kNullPage)
                    draft.plan.groups[g].stores.append({id, page, kept.host[g].page(i)});
        event.store = id;
    }
    running_.erase(request);
    [[maybe_unused]] const Outcome outcome = dispatch(request.state, event);
    assert(outcome == Outcome::applied);
    request.retracted = true;
    request.forked = false; // its tokens are no longer the parent's
    waiting_.insert(&request);
    draft.plan.retracted.push_back(request.handle);
    ++retractions_;
}

void Scheduler::emit(Draft& draft, Request& request, std::int32_t rows, bool sample) {
    Residence& home = *request.home();
    const std::int32_t begin = home.planned;
    const std::int32_t end = begin + rows;
    const bool decode = request.unplanned_prefill() == 0;
    Plan& plan = draft.plan;
    clock_.work += rows;
    plan.slots.push_back(home.slot.id());
    plan.seq_lens.push_back(end);
    plan.samples.push_back(sample ? 1 : 0);
    emit_tokens(plan, request, begin, end);
    plan.query_starts.push_back(plan.num_tokens());
    for (std::int32_t g = 0; g < cache_.groups(); ++g)
        emit_group(plan.groups[g], g, home, end);
    const std::int32_t most = !sample ? 0 : decode ? rows : 1;
    draft.record.add({&request, request.handle.generation, home.slot.id(), end, most});
    home.planned = end;
    home.last = draft.step;
    if (sample) cache_.remember_page(home);
    request.pending += most;
    ++request.steps_in_flight;
}

void Scheduler::emit_tokens(Plan& plan, const Request& request, std::int32_t begin,
                            std::int32_t end) {
    const auto rows = static_cast<std::size_t>(end - begin);
    std::iota(plan.positions.room(rows), plan.positions.room(rows) + rows, begin);
    plan.positions.advance(rows);
    std::int32_t* tokens = plan.token_ids.room(rows);
    plan.token_ids.advance(rows);
    const std::int32_t known = std::clamp(request.known(), begin, end);
    if (known > begin) {
        const TokenId* all = request.tokens.all().data();
        tokens = std::copy(all + begin, all + known, tokens);
    }
    std::fill_n(tokens, end - known, kUnknownToken);
}

void Scheduler::emit_group(GroupPlan& plan, std::int32_t group, Residence& home,
                           std::int32_t end) const {
    Table& table = home.tables[group];
    const bool zero = config_.groups[group].zero_pages;
    table.announce([&](std::int32_t index, PageId page) {
        ++clock_.work;
        plan.table_deltas.append({home.slot.id(), index, page});
        if (zero && index >= table.sealed()) plan.zero_pages.push_back(page);
    });
    std::int32_t* slots = plan.slot_mapping.room(static_cast<std::size_t>(end - home.planned));
    plan.slot_mapping.advance(static_cast<std::size_t>(end - home.planned));
    for (std::int32_t position = home.planned; position < end;) {
        const std::int32_t index = position / config_.page_size;
        const std::int32_t base = table.base(index, config_.page_size);
        const std::int32_t stop = std::min(end, (index + 1) * config_.page_size);
        for (; position < stop; ++position)
            *slots++ = base + position;
    }
}

} // namespace tsscheduler
