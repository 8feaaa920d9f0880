#include "scheduler.h"

namespace tsscheduler {

Scheduler::Scheduler(Config config)
    : config_(std::move(config)), slots_(config_.max_batch, clock_), flight_(config_.max_batch) {
    assert(config_.problem().empty());
    for (const CacheGroupConfig& group : config_.groups)
        pools_.push_back(std::make_unique<Pool>(group.pages, clock_));
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
    for (std::int32_t g = 0; g < to_i32(pools_.size()); ++g) {
        const std::int32_t need = config_.peak_pages(g, positions);
        if (need > pools_[g]->total())
            return sizes + " need " + std::to_string(need) + " pages of group '" +
                   config_.groups[g].name + "', which has " + std::to_string(pools_[g]->total());
    }
    return {};
}

Handle Scheduler::submit(const Submission& submission) {
    Request& request = requests_.add();
    request.order = {std::int64_t{submission.priority} * config_.ageing + clock_.planned,
                     arrivals_++};
    request.salt = submission.salt;
    request.prompt = to_i32(submission.tokens.size());
    request.max_new = submission.max_new_tokens;
    request.tokens.assign(submission.tokens.begin(), submission.tokens.end());
    waiting_.insert(&request);
    return request.handle;
}

bool Scheduler::abort(Handle handle) {
    Request* request = requests_.find(handle);
    if (request == nullptr) return false;
    end(*request, Abort{});
    return true;
}

template <class Event> void Scheduler::end(Request& request, Event event) {
    if (request.home() != nullptr)
        running_.erase(request);
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
    stats.running = running_.size();
    for (const auto& pool : pools_) {
        stats.free_pages.push_back(pool->free());
        stats.cached_pages.push_back(0);
    }
    stats.retractions = retractions_;
    return stats;
}

} // namespace tsscheduler
