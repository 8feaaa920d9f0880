#include "scheduler.h"

namespace tsscheduler {

Scheduler::Scheduler(Config config)
    : config_(std::move(config)), cache_(config_, clock_), slots_(config_.max_batch, clock_),
      flight_(config_.max_batch), shares_(static_cast<std::size_t>(config_.max_batch)),
      rows_(static_cast<std::size_t>(config_.max_batch)) {
    assert(config_.problem().empty());
}

std::string Scheduler::refusal(const Submission& submission) const {
    const std::size_t prompt = submission.tokens.size();
    if (prompt == 0) return "the prompt is empty";
    if (submission.max_new_tokens < 1)
        return "max_new_tokens is " + std::to_string(submission.max_new_tokens) +
               ", which must be at least 1";
    const std::size_t length = prompt + static_cast<std::size_t>(submission.max_new_tokens);
    const std::string sizes = std::to_string(prompt) + " prompt tokens + max_new_tokens " +
                              std::to_string(submission.max_new_tokens) + " = " +
                              std::to_string(length);
    if (length > static_cast<std::size_t>(config_.max_model_len))
        return sizes + " exceed max_model_len " + std::to_string(config_.max_model_len);
    for (TokenId token : submission.tokens)
        if (token < 0) return "token " + std::to_string(token) + " is negative";
    // The last token is never read, so it needs no place in the cache.
    const std::int32_t positions = to_i32(length) - 1;
    for (std::int32_t g = 0; g < cache_.groups(); ++g) {
        const std::int32_t need = config_.peak_pages(g, positions);
        if (need > cache_.pool(g).total())
            return sizes + " need " + std::to_string(need) + " pages of group '" +
                   config_.groups[g].name + "', which has " +
                   std::to_string(cache_.pool(g).total());
    }
    return {};
}

Handle Scheduler::submit(const Submission& submission) {
    Request& request = requests_.add();
    request.order = {std::int64_t{submission.priority} * config_.ageing + clock_.planned,
                     arrivals_++};
    request.priority = submission.priority;
    request.salt = submission.salt;
    request.limit = to_i32(submission.tokens.size()) + submission.max_new_tokens;
    request.tokens.assign(submission.tokens, submission.max_new_tokens);
    waiting_.insert(&request);
    return request.handle;
}

bool Scheduler::abort(Handle handle) {
    Request* request = requests_.find(handle);
    if (request == nullptr) return false;
    end(*request, Abort{});
    return true;
}

std::string Scheduler::fork_refusal(Handle parent, std::int32_t max_new_tokens) {
    const Request* request = requests_.find(parent);
    if (request == nullptr) return "the parent of the fork is not live";
    return refusal({request->tokens.all(), max_new_tokens});
}

Handle Scheduler::fork(Handle parent, std::int32_t max_new_tokens) {
    const Request& from = *requests_.find(parent);
    const Handle handle = submit({from.tokens.all(), max_new_tokens, from.priority, from.salt});
    Request& request = *requests_.find(handle);
    request.forked = true;
    request.parent = parent;
    return handle;
}

template <class Event> void Scheduler::end(Request& request, Event event) {
    if (request.home() != nullptr)
        running_.erase(request);
    else if (std::holds_alternative<Loading>(request.state))
        --loading_;
    else
        waiting_.erase(&request);
    [[maybe_unused]] const Outcome outcome = dispatch(request.state, std::move(event));
    assert(outcome == Outcome::applied);
    requests_.remove(request);
}

template void Scheduler::end(Request&, Abort);
template void Scheduler::end(Request&, Finish);

Stats Scheduler::stats() const {
    Stats stats;
    stats.waiting = to_i32(waiting_.size());
    stats.running = running_.size() + loading_;
    for (std::int32_t g = 0; g < cache_.groups(); ++g) {
        stats.free_pages.push_back(cache_.pool(g).free());
        stats.cached_pages.push_back(cache_.pool(g).idle());
        if (const Pool* host = cache_.host_pool(g)) {
            stats.host_free_pages.push_back(host->free());
            stats.host_cached_pages.push_back(host->idle());
        }
    }
    stats.retractions = retractions_;
    stats.work = clock_.work;
    return stats;
}

} // namespace tsscheduler
