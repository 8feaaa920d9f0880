// Planning a step: one pass over the running requests in their order, then admissions.
#include "scheduler.h"

namespace tsscheduler {

struct Scheduler::Draft {
    Step step;
    Plan& plan;
    StepRecord& record;
    std::int32_t prefill_budget = 0;             // what the decodes leave of the token budget
    bool pressed = false;                        // somebody had to wait or to go
    std::array<std::int32_t, kMaxGroups> owed{}; // pages that earlier requests wait for
    std::vector<std::pair<Request*, std::int32_t>> chunks{};
};

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
    draft.prefill_budget = config_.token_budget - decode_rows();
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
    return requests_.live() == 0 ? EmptyReason::idle : EmptyReason::in_flight;
}

// A plan that nobody reads any more, or a new one.
std::shared_ptr<Plan> Scheduler::blank_plan() {
    for (const auto& plan : plans_)
        if (plan.use_count() == 1) {
            plan->clear();
            return plan;
        }
    plans_.push_back(std::make_shared<Plan>());
    plans_.back()->groups.resize(pools_.size());
    plans_.back()->clear();
    return plans_.back();
}

// Rows of the request's next decode; 0 if it is not its turn.
std::int32_t Scheduler::ready_rows(Request& request) const {
    const Residence& home = *request.home();
    if (request.unplanned_prefill() > 0 || request.remaining() == 0) return 0;
    // Several tokens a step: how far it got is known only at the commit.
    if (config_.tokens_per_step > 1 && request.pending > 0) return 0;
    assert(home.planned == request.known() + request.pending - 1);
    (void)home;
    return std::min(config_.tokens_per_step, request.remaining());
}

std::int32_t Scheduler::decode_rows() const {
    std::int32_t rows = 0;
    for (std::int32_t i = 0; i < running_.size(); ++i)
        rows += ready_rows(running_[i]);
    return rows;
}

void Scheduler::plan_running(Draft& draft) {
    for (std::int32_t i = 0; i < running_.size(); ++i) {
        Request& request = running_[i];
        if (const std::int32_t rows = ready_rows(request); rows > 0) {
            const Room room = make_room(draft, request, request.home()->planned + rows);
            if (room == Room::lost) break;
            if (room == Room::later) continue;
            emit(draft, request, rows, true);
            ++draft.plan.num_decodes;
        } else if (const std::int32_t left = request.unplanned_prefill(); left > 0) {
            const std::int32_t chunk = std::min(left, draft.prefill_budget);
            if (chunk == 0) continue;
            const Room room = make_room(draft, request, request.home()->planned + chunk);
            if (room == Room::lost) break;
            if (room == Room::later) continue;
            draft.prefill_budget -= chunk;
            draft.chunks.emplace_back(&request, chunk);
        }
    }
}

void Scheduler::plan_chunks(Draft& draft) {
    for (const auto& [request, chunk] : draft.chunks)
        emit(draft, *request, chunk, chunk == request->unplanned_prefill());
}

void Scheduler::admit(Draft& draft) {
    while (!waiting_.empty() && draft.prefill_budget > 0 && slots_.free() > 0) {
        Request& first = **waiting_.begin();
        // A step in flight still names it: its token comes first. Nobody passes it.
        if (first.steps_in_flight > 0 || !fits(first)) return;
        waiting_.erase(waiting_.begin());
        place(draft, first);
    }
}

bool Scheduler::fits(const Request& request) const {
    const bool alone = running_.empty();
    for (std::int32_t g = 0; g < to_i32(pools_.size()); ++g) {
        std::int32_t need = config_.peak_pages(g, request.known());
        if (!alone) need += config_.watermark_pages(g);
        if (!alone && request.retracted) need += config_.pages_for(config_.tokens_per_step);
        if (need > pools_[g]->free()) return false;
    }
    return true;
}

// Gives the request its place and its first chunk.
void Scheduler::place(Draft& draft, Request& request) {
    Residence home{.slot = slots_.take()};
    for (std::int32_t g = 0; g < to_i32(pools_.size()); ++g) {
        Table& table = home.tables.add(*pools_[g]);
        if (!config_.groups[g].window) grow(table, *pools_[g], request.known());
    }
    draft.plan.admitted.push_back({request.handle, home.slot.id(), home.planned});
    [[maybe_unused]] const Outcome outcome =
        dispatch(request.state, Admit{std::move(home), request.known()});
    assert(outcome == Outcome::applied);
    running_.insert(request);
    const std::int32_t chunk = std::min(request.unplanned_prefill(), draft.prefill_budget);
    draft.prefill_budget -= chunk;
    Residence& placed = *request.home();
    for (std::int32_t g = 0; g < to_i32(pools_.size()); ++g)
        grow(placed.tables[g], *pools_[g], placed.planned + chunk);
    emit(draft, request, chunk, chunk == request.unplanned_prefill());
}

std::int32_t Scheduler::missing(const Table& table, std::int32_t end) const {
    return std::max(0, config_.pages_for(end) - table.size());
}

void Scheduler::grow(Table& table, Pool& pool, std::int32_t end) const {
    table.reserve(config_.pages_for(end));
    for (std::int32_t n = missing(table, end); n > 0; --n)
        table.append(pool.allocate());
}

// Gets the pages that the request needs to compute positions up to `end`. If there are too few,
// waits for those behind the fence, or else retracts the last request in the order.
Scheduler::Room Scheduler::make_room(Draft& draft, Request& request, std::int32_t end) {
    const std::int32_t groups = to_i32(pools_.size());
    while (true) {
        Tables& tables = request.home()->tables;
        bool now = true;
        bool soon = true;
        for (std::int32_t g = 0; g < groups; ++g) {
            const std::int32_t need = missing(tables[g], end);
            if (need == 0) continue;
            const std::int32_t free = pools_[g]->free() - draft.owed[g];
            now = now && need <= free;
            soon = soon && need <= free + pools_[g]->fenced();
        }
        if (now) {
            for (std::int32_t g = 0; g < groups; ++g)
                grow(tables[g], *pools_[g], end);
            return Room::taken;
        }
        draft.pressed = true;
        if (soon || &running_[0] == &running_.last()) {
            for (std::int32_t g = 0; g < groups; ++g)
                draft.owed[g] += missing(tables[g], end);
            return Room::later;
        }
        Request& victim = running_.last();
        const bool self = &victim == &request;
        retract(draft, victim);
        if (self) return Room::lost;
    }
}

void Scheduler::retract(Draft& draft, Request& request) {
    draft.prefill_budget += ready_rows(request);
    running_.erase(request);
    [[maybe_unused]] const Outcome outcome = dispatch(request.state, Retract{});
    assert(outcome == Outcome::applied);
    request.retracted = true;
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
    plan.slots.push_back(home.slot.id());
    plan.seq_lens.push_back(end);
    plan.samples.push_back(sample ? 1 : 0);
    for (std::int32_t position = begin; position < end; ++position) {
        plan.positions.push_back(position);
        plan.token_ids.push_back(position < request.known() ? request.tokens[position]
                                                            : kUnknownToken);
    }
    plan.query_starts.push_back(plan.num_tokens());
    for (std::int32_t g = 0; g < home.tables.count(); ++g)
        emit_group(plan.groups[g], home.tables[g], home.slot.id(), begin, end);
    const std::int32_t most = !sample ? 0 : decode ? rows : 1;
    draft.record.add({request.handle, home.slot.id(), end, most});
    home.planned = end;
    home.touch(draft.step);
    request.pending += most;
    ++request.steps_in_flight;
}

void Scheduler::emit_group(GroupPlan& plan, Table& table, SlotId slot, std::int32_t begin,
                           std::int32_t end) const {
    table.announce([&](std::int32_t index, PageId page) {
        plan.table_deltas.insert(plan.table_deltas.end(), {slot, index, page});
    });
    for (std::int32_t position = begin; position < end; ++position)
        plan.slot_mapping.push_back(table.write_slot(position, config_.page_size));
}

} // namespace tsscheduler
