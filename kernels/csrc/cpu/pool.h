// The process's one pool of threads: they spin briefly between kernels and sleep when idle.
#pragma once

#include "cpu/calls.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace tskernels::cpu {

// Parallel loops from one caller at a time. Work is handed out in chunks by an atomic ticket, so a
// thread that the system delays holds up one chunk at most. After fork() the child has no threads
// and runs every loop by itself until `resize` starts some.
class Pool {
  public:
    static Pool& get();

    // Threads that take part, the caller included; at least 1. Not during a loop.
    void resize(int threads);

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // body(begin, end) over [0, units) in pieces of `chunk`, in no particular order.
    template <class Body> void run(Size units, Size chunk, const Body& body) {
        if (workers_.empty() || units <= chunk) {
            if (units > 0) body(Size{0}, units);
            return;
        }
        post(units, chunk, &body, [](const void* b, Size begin, Size end) {
            (*static_cast<const Body*>(b))(begin, end);
        });
    }

  private:
    using Function = void (*)(const void*, Size, Size);

    struct Job {
        Function function = nullptr;
        const void* body = nullptr;
        Size units = 0;
        Size chunk = 1;
    };

    Pool() = default;
    void post(Size units, Size chunk, const void* body, Function function);
    bool work();
    void serve();
    void stop();

    // epoch (24 bits) | chunks (20) | next chunk (20): one fetch_add claims a chunk and tells
    // whether there is one, so that a late thread never reads a job that is being replaced.
    alignas(64) std::atomic<std::uint64_t> ticket_{0};
    alignas(64) std::atomic<Size> done_{0};
    alignas(64) std::atomic<std::int32_t> wake_{0};
    std::atomic<std::int32_t> sleepers_{0};
    std::atomic<bool> stopping_{false};
    Job job_;
    std::vector<std::thread> workers_;
};

} // namespace tskernels::cpu
