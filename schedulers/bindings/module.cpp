// Python binding of the scheduler. Errors of the core, which are texts, become exceptions here.
#include "views.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;
using namespace tsscheduler;

namespace {

void require(const std::string& problem) {
    if (!problem.empty()) throw nb::value_error(problem.c_str());
}

void bind_values(nb::module_& m) {
    nb::class_<Handle>(m, "Handle")
        .def_prop_ro("index", [](const Handle& h) { return h.index; })
        .def_prop_ro("generation", [](const Handle& h) { return h.generation; })
        .def("__eq__",
             [](const Handle& a, nb::handle b) {
                 return nb::isinstance<Handle>(b) && a == nb::cast<const Handle&>(b);
             })
        .def("__hash__",
             [](const Handle& h) { return (std::uint64_t{h.generation} << 32U) | h.index; })
        .def("__repr__", [](const Handle& h) {
            return "Handle(" + std::to_string(h.index) + ", " + std::to_string(h.generation) + ")";
        });
    nb::class_<Admission>(m, "Admission")
        .def_ro("handle", &Admission::handle)
        .def_ro("slot", &Admission::slot)
        .def_ro("cached_tokens", &Admission::cached_tokens);
    nb::class_<Stats>(m, "Stats")
        .def_ro("waiting", &Stats::waiting)
        .def_ro("running", &Stats::running)
        .def_ro("free_pages", &Stats::free_pages)
        .def_ro("cached_pages", &Stats::cached_pages)
        .def_ro("host_free_pages", &Stats::host_free_pages)
        .def_ro("host_cached_pages", &Stats::host_cached_pages)
        .def_ro("retractions", &Stats::retractions)
        .def_ro("work", &Stats::work);
}

void bind_config(nb::module_& m) {
    nb::class_<CacheGroupConfig>(m, "CacheGroupConfig")
        .def(
            "__init__",
            [](CacheGroupConfig* self, std::string name, std::int32_t pages,
               std::optional<std::int32_t> window, bool zero_pages) {
                new (self) CacheGroupConfig{std::move(name), pages, window, zero_pages};
            },
            "name"_a, "pages"_a, "window"_a = nb::none(), "zero_pages"_a = false);
    nb::class_<Config>(m, "Config")
        .def(
            "__init__",
            [](Config* self, std::int32_t page_size, std::int32_t max_batch,
               std::int32_t max_model_len, std::int32_t token_budget,
               std::vector<CacheGroupConfig> groups, std::int32_t tokens_per_step,
               std::int32_t host_pages, bool prefix_cache, double watermark, std::int32_t ageing,
               std::int32_t prefix_hash_bits) {
                Config config{page_size,         max_batch,       max_model_len,   token_budget,
                              std::move(groups), tokens_per_step, host_pages,      prefix_cache,
                              watermark,         ageing,          prefix_hash_bits};
                require(config.problem());
                new (self) Config(std::move(config));
            },
            nb::kw_only(), "page_size"_a, "max_batch"_a, "max_model_len"_a, "token_budget"_a,
            "groups"_a, "tokens_per_step"_a = 1, "host_pages"_a = 0, "prefix_cache"_a = true,
            "watermark"_a = 0.01, "ageing"_a = 64, "prefix_hash_bits"_a = 32);
}

void bind_group(nb::module_& m) {
    nb::class_<GroupView> group(m, "GroupPlan");
    const auto array = [&group](const char* name, Array GroupPlan::* member,
                                Window GroupWindows::* window, std::size_t columns) {
        group.def_prop_ro(name, [=](const GroupView& view) {
            const GroupPlan& plan = view.windows->plan->groups[view.index];
            return (view.windows->groups[view.index].*window).view(plan.*member, columns);
        });
    };
    array("slot_mapping", &GroupPlan::slot_mapping, &GroupWindows::slot_mapping, 1);
    array("zero_pages", &GroupPlan::zero_pages, &GroupWindows::zero_pages, 1);
    array("table_deltas", &GroupPlan::table_deltas, &GroupWindows::table_deltas, 3);
    array("copies", &GroupPlan::copies, &GroupWindows::copies, 2);
    array("stores", &GroupPlan::stores, &GroupWindows::stores, 3);
    array("loads", &GroupPlan::loads, &GroupWindows::loads, 3);
}

nb::tuple groups(const PlanView& view) {
    nb::list groups;
    for (std::size_t g = 0; g < view.plan().groups.size(); ++g)
        groups.append(GroupView{view.windows, g});
    return nb::tuple(groups);
}

void bind_plan(nb::module_& m) {
    nb::class_<PlanView> plan(m, "Plan");
    plan.def_prop_ro("step", [](const PlanView& p) { return p.plan().step; })
        .def_prop_ro("empty", [](const PlanView& p) { return p.plan().empty(); })
        .def_prop_ro("reason", [](const PlanView& p) { return to_string(p.plan().reason); })
        .def_prop_ro("num_sequences", [](const PlanView& p) { return p.plan().slots.size(); })
        .def_prop_ro("num_tokens", [](const PlanView& p) { return p.plan().num_tokens(); })
        .def_prop_ro("num_decodes", [](const PlanView& p) { return p.plan().num_decodes; })
        .def_prop_ro("admitted", [](const PlanView& p) { return p.plan().admitted; })
        .def_prop_ro("retracted", [](const PlanView& p) { return p.plan().retracted; })
        .def_prop_ro("groups", &groups);
    const auto array = [&plan](const char* name, Array Plan::* member,
                               Window PlanWindows::* window) {
        plan.def_prop_ro(name, [=](const PlanView& view) {
            return ((*view.windows).*window).view(view.plan().*member, 1);
        });
    };
    array("slots", &Plan::slots, &PlanWindows::slots);
    array("query_starts", &Plan::query_starts, &PlanWindows::query_starts);
    array("seq_lens", &Plan::seq_lens, &PlanWindows::seq_lens);
    array("positions", &Plan::positions, &PlanWindows::positions);
    array("token_ids", &Plan::token_ids, &PlanWindows::token_ids);
    array("samples", &Plan::samples, &PlanWindows::samples);
}

Handle submit(PlanningScheduler& scheduler, const TokenArray& tokens, std::int32_t max_new_tokens,
              std::int32_t priority, std::int64_t salt) {
    const Submission submission{as_span(tokens), max_new_tokens, priority, salt};
    require(scheduler.refusal(submission));
    return scheduler.submit(submission);
}

Handle submit_sequence(PlanningScheduler& scheduler, const std::vector<std::int32_t>& tokens,
                       std::int32_t max_new_tokens, std::int32_t priority, std::int64_t salt) {
    const Submission submission{tokens, max_new_tokens, priority, salt};
    require(scheduler.refusal(submission));
    return scheduler.submit(submission);
}

void bind_scheduler(nb::module_& m) {
    nb::class_<PlanningScheduler>(m, "Scheduler")
        .def(nb::init<Config>(), "config"_a)
        .def("submit", &submit, "tokens"_a.noconvert(), "max_new_tokens"_a, nb::kw_only(),
             "priority"_a = 0, "salt"_a = 0)
        .def("submit", &submit_sequence, "tokens"_a, "max_new_tokens"_a, nb::kw_only(),
             "priority"_a = 0, "salt"_a = 0)
        .def(
            "fork",
            [](PlanningScheduler& s, Handle parent, std::int32_t max_new_tokens) {
                require(s.fork_refusal(parent, max_new_tokens));
                return s.fork(parent, max_new_tokens);
            },
            "parent"_a, "max_new_tokens"_a)
        .def("plan", &PlanningScheduler::plan_view)
        .def(
            "commit",
            [](PlanningScheduler& s, Step step, const TokenArray& slots, const TokenArray& tokens,
               const FlagArray& finished) {
                require(s.commit(step, {as_span(slots), as_span(tokens), as_span(finished)}));
            },
            "step"_a, "slots"_a, "tokens"_a, "finished"_a)
        .def("abort", &PlanningScheduler::abort, "handle"_a)
        .def(
            "transfer_done",
            [](PlanningScheduler& s, TicketId ticket, bool ok) {
                require(s.transfer_done(ticket, ok));
            },
            "ticket"_a, "ok"_a)
        .def("stats", &PlanningScheduler::stats)
        .def("check_invariants", [](PlanningScheduler& s) {
            if (const std::string broken = s.broken_invariant(); !broken.empty())
                throw std::runtime_error(broken);
        });
}

} // namespace

NB_MODULE(_core, m) {
    m.doc() = "The scheduler.";
    nb::set_leak_warnings(false); // objects that outlive the interpreter are nobody's concern
    m.attr("__version__") = TSSCHEDULER_VERSION;
    bind_values(m);
    bind_config(m);
    bind_group(m);
    bind_plan(m);
    bind_scheduler(m);
}
