#include "cpu/pool.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>

namespace tskernels::cpu {

namespace {

constexpr std::uint64_t kIndexBits = 20;
constexpr std::uint64_t kMask = (1U << kIndexBits) - 1;
constexpr Size kMostChunks = kMask / 2; // leaves room for the fetch_adds of late threads
constexpr auto kSpin = std::chrono::microseconds(60);
constexpr int kSpinsBetweenClocks = 64;

std::uint64_t index_of(std::uint64_t ticket) {
    return ticket & kMask;
}

std::uint64_t chunks_of(std::uint64_t ticket) {
    return (ticket >> kIndexBits) & kMask;
}

bool open(std::uint64_t ticket) {
    return index_of(ticket) < chunks_of(ticket);
}

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Spin until `ready`, for at most kSpin; whether it became so.
template <class Ready> bool spin(const Ready& ready) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < kSpinsBetweenClocks; ++i) {
            if (ready()) return true;
            pause();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

Pool* pool = nullptr;

} // namespace

Pool& Pool::get() {
    static const bool made = [] {
        pool = new Pool; // never destroyed: its threads may outlive static destructors
        // The child of a fork has none of the threads; the old pool is left alone, not destroyed.
        pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
        return true;
    }();
    static_cast<void>(made);
    return *pool;
}

void Pool::resize(int threads) {
    stop();
    stopping_ = false;
    for (int i = 1; i < threads; ++i)
        workers_.emplace_back([this] { serve(); });
}

void Pool::stop() {
    stopping_ = true;
    wake_.fetch_add(1);
    wake_.notify_all();
    for (auto& worker : workers_)
        worker.join();
    workers_.clear();
}

void Pool::post(Size units, Size chunk, const void* body, Function function) {
    chunk = std::max(chunk, (units + kMostChunks - 1) / kMostChunks);
    const Size chunks = (units + chunk - 1) / chunk;
    job_ = {function, body, units, chunk};
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> (2 * kIndexBits)) + 1;
    ticket_.store((epoch << (2 * kIndexBits)) |
                  (static_cast<std::uint64_t>(chunks) << kIndexBits)); // seq_cst, before sleepers_
    if (sleepers_.load() > 0) {
        wake_.fetch_add(1);
        wake_.notify_all();
    }
    while (work()) {
    }
    const auto finished = [&] { return done_.load(std::memory_order_acquire) == chunks; };
    while (!spin(finished))
        std::this_thread::yield();
}

// Take one chunk of the current job; false if none is left.
bool Pool::work() {
    if (!open(ticket_.load(std::memory_order_relaxed))) return false;
    const std::uint64_t mine = ticket_.fetch_add(1, std::memory_order_acq_rel);
    if (!open(mine)) return false;
    // The job cannot complete, hence not be replaced, before this chunk is done.
    const Size begin = static_cast<Size>(index_of(mine)) * job_.chunk;
    job_.function(job_.body, begin, std::min(job_.units, begin + job_.chunk));
    done_.fetch_add(1, std::memory_order_release);
    return true;
}

void Pool::serve() {
    const auto due = [this] { return open(ticket_.load(std::memory_order_relaxed)); };
    while (!stopping_) {
        while (work()) {
        }
        if (spin(due)) continue;
        const std::int32_t seen = wake_.load();
        sleepers_.fetch_add(1);
        if (!open(ticket_.load()) && !stopping_) wake_.wait(seen);
        sleepers_.fetch_sub(1);
    }
}

} // namespace tskernels::cpu
