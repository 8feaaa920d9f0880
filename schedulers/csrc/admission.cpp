// Giving waiting requests a place, first come first.
#include "draft.h"

namespace tsscheduler {

void Scheduler::admit(Draft& draft) {
    while (!waiting_.empty() && draft.prefill_budget > 0 && slots_.free() > 0) {
        ++clock_.work;
        Request& first = **waiting_.begin();
        // Nobody passes it: neither while a step in flight names it (its token comes first), nor
        // while it is being stored.
        if (first.steps_in_flight > 0 || !std::holds_alternative<Waiting>(first.state)) return;
        if (!may_fit(first)) return;
        const Hit hit = cache_.find(first);
        if (!fits(first, hit)) return;
        waiting_.erase(waiting_.begin());
        place(draft, first, hit);
    }
}

// Spares a look at the cache when the last one cannot have become wrong.
bool Scheduler::may_fit(const Request& request) const {
    if (!blocked_ || blocked_->handle != request.handle) return true;
    if (running_.empty() && loading_ == 0) return true;
    const std::int64_t published = cache_.published() - blocked_->published;
    if (cache_.windowed() && published > 0) return true; // one page may close a gap in a long hit
    return cache_.pool(blocked_->group).obtainable() + published >= blocked_->need;
}

// The whole need; while others run also a watermark, and room to grow for one that has been
// retracted before, so that it does not come back only to be retracted again.
bool Scheduler::fits(const Request& request, const Hit& hit) {
    const bool alone = running_.empty() && loading_ == 0;
    for (std::int32_t g = 0; g < cache_.groups(); ++g) {
        std::int32_t need = cache_.need(request, hit, g);
        if (!alone) need += config_.watermark_pages(g);
        if (!alone && request.retracted) need += config_.pages_for(config_.tokens_per_step);
        if (need <= cache_.obtainable(hit, g)) continue;
        blocked_ = Blocked{request.handle, g, need, cache_.published()};
        return false;
    }
    return true;
}

void Scheduler::place(Draft& draft, Request& request, const Hit& hit) {
    Residence home(slots_.take());
    cache_.take(home, request, hit);
    if (hit.host > hit.device)
        begin_load(draft, request, std::move(home), hit);
    else
        begin_prefill(draft, request, std::move(home));
}

void Scheduler::begin_load(Draft& draft, Request& request, Residence home, const Hit& hit) {
    const TicketId id = transfers_.add(cache_.load(request, hit));
    const Ticket& ticket = transfers_[id];
    for (std::int32_t g = 0; g < cache_.groups(); ++g)
        for (std::int32_t i = hit.device; i < hit.host; ++i)
            if (const PageId page = ticket.host[g].page(i); page != kNullPage)
                draft.plan.groups[g].loads.append(
                    {id, page, ticket.device[g].page(i - hit.device)});
    const std::int32_t loaded = hit.host * config_.page_size;
    draft.plan.admitted.push_back({request.handle, home.slot.id(), loaded});
    dispatch(request.state, Admit{std::move(home), request.known(), Admit::Load{id, loaded}});
    ++loading_;
}

void Scheduler::begin_prefill(Draft& draft, Request& request, Residence home) {
    Request* parent = request.forked ? requests_.find(request.parent) : nullptr;
    Residence* source = parent == nullptr ? nullptr : parent->home();
    const bool copies = source != nullptr && cache_.fork(home, request, *source);
    const std::int32_t chunk = std::min(request.known() - home.planned, draft.prefill_budget);
    for (std::int32_t g = 0; g < cache_.groups(); ++g)
        cache_.grow(home.tables[g], g,
                    config_.groups[g].window ? home.planned + chunk : request.known());
    if (copies) {
        const std::int32_t index = (home.planned - 1) / config_.page_size;
        for (std::int32_t g = 0; g < cache_.groups(); ++g)
            draft.plan.groups[g].copies.append(
                {source->tables[g].page(index), home.tables[g].page(index)});
        source->last = draft.step;
    }
    draft.plan.admitted.push_back({request.handle, home.slot.id(), home.planned});
    dispatch(request.state, Admit{std::move(home), request.known(), std::nullopt});
    request.load_failed = false;
    running_.insert(request);
    draft.prefill_budget -= chunk;
    emit(draft, request, chunk, chunk == request.unplanned_prefill());
}

std::string Scheduler::transfer_done(TicketId id, bool ok) {
    std::optional<Ticket> ticket = transfers_.take(id);
    if (!ticket) return "ticket " + std::to_string(id) + " is not outstanding";
    Request* request = requests_.find(ticket->handle);
    if (ticket->kind == Ticket::Kind::store) {
        if (ok) cache_.stored(*ticket);
        if (request != nullptr)
            ok ? dispatch(request->state, StoreDone{}) : dispatch(request->state, StoreFailed{});
        return {};
    }
    if (request == nullptr) return {}; // aborted: the pages go with the ticket
    --loading_;
    if (ok) {
        for (std::int32_t g = 0; g < cache_.groups(); ++g)
            while (ticket->device[g].sealed() < ticket->end - ticket->begin)
                ticket->device[g].seal_next();
        dispatch(request->state, LoadDone{std::move(ticket->device)});
        cache_.settle(*request->home(), *request);
        running_.insert(*request);
    } else {
        dispatch(request->state, LoadFailed{});
        request->load_failed = true;
        waiting_.insert(request);
    }
    return {};
}

} // namespace tsscheduler
