// Python binding of the search's core: arrays of numpy's come in, small tuples and lists go out.
#include "segment.h"

#include <algorithm>
#include <complex>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/complex.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;
using namespace tssearch;

namespace {

using Number = std::complex<double>;
template <class T, std::size_t Dims>
using Array = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
using Indices = Array<std::int64_t, 1>;
using Table = Array<std::int64_t, 2>;
using Numbers = Array<Number, 1>;

// Both parts are whole and below 2^53.
Price price(const Number& number) {
    return {static_cast<std::int64_t>(number.real()), static_cast<std::int64_t>(number.imag())};
}

Number number(const Price& price) {
    return {static_cast<double>(price.time), static_cast<double>(price.rest)};
}

void require(bool held, const char* message) {
    if (!held) throw nb::value_error(message);
}

// Numbers of placements, each of which there is.
Placements checked(std::size_t placements, Placements used) {
    for (const Placement placement : used)
        require(placement >= 0 && at(placement) < placements, "no such placement");
    return used;
}

std::vector<Step> steps(std::size_t placements, const Indices& sources, const Indices& targets,
                        const Numbers& prices) {
    require(sources.size() == prices.size() && targets.size() == prices.size(),
            "as many sources, targets and prices as there are steps");
    std::vector<Step> found;
    for (std::size_t i = 0; i < prices.size(); ++i) {
        const auto source = static_cast<Placement>(sources(i));
        const auto target = static_cast<Placement>(targets(i));
        checked(placements, {source, target});
        found.push_back({source, target, price(prices(i))});
    }
    return found;
}

// A row of the table for each value; of a value that comes twice the last one.
std::vector<Operand> operands(const Values& values, const Table& placements) {
    require(values.size() == placements.shape(0), "a row of placements for each value");
    std::vector<Operand> found;
    for (std::size_t i = 0; i < values.size(); ++i) {
        auto same = std::find_if(found.begin(), found.end(),
                                 [&](const Operand& other) { return other.value == values[i]; });
        if (same == found.end()) same = found.insert(found.end(), {values[i], {}});
        same->placements.clear();
        for (std::size_t column = 0; column < placements.shape(1); ++column)
            same->placements.push_back(static_cast<Placement>(placements(i, column)));
    }
    return found;
}

Options options(std::size_t span, const Values& inputs, const Values& outputs,
                const Table& requires_, const Table& gives, const Numbers& prices) {
    require(requires_.shape(1) == prices.size() && gives.shape(1) == prices.size(),
            "a column of placements for each price");
    require(prices.size() > 0, "no option");
    Options found{span, operands(inputs, requires_), operands(outputs, gives), {}, {}, {}};
    for (std::size_t i = 0; i < prices.size(); ++i)
        found.prices.push_back(price(prices(i)));
    return found;
}

void check_operands(const std::vector<Operand>& operands, const Segment::Stocks& stocks) {
    for (const Operand& operand : operands) {
        require(operand.value >= 0 && at(operand.value) < stocks.size(), "no such value");
        checked(stocks[at(operand.value)]->trees().placements(), operand.placements);
    }
}

// That all numbers name something.
void check_segment(const Segment::Stocks& stocks, const std::vector<Values>& live,
                   const std::vector<Values>& once, const Segment::Stages& stages) {
    require(live.size() == stages.size() + 1 && once.size() == live.size(),
            "live values before each operation and after the last");
    for (const Values& values : live)
        for (const Value value : values)
            require(value >= 0 && at(value) < stocks.size(), "no such value");
    for (std::size_t position = 0; position < stages.size(); ++position) {
        for (const Options& one : stages[position]) {
            require(one.span > 0 && position + one.span <= stages.size(), "no such operation");
            check_operands(one.reads, stocks);
            check_operands(one.gives, stocks);
        }
    }
}

nb::tuple held(const States& states, std::size_t row) {
    if (row >= states.size()) throw nb::index_error("no such state");
    nb::list holdings;
    for (const Holding holding : states[row])
        holdings.append(holding);
    return nb::tuple(holdings);
}

nb::tuple passage(const Explored& explored, const Holdings& exit) {
    std::size_t row = 0;
    while (row < explored.exit.size() && !std::ranges::equal(explored.exit[row], exit))
        ++row;
    if (row == explored.exit.size()) throw nb::value_error("no such state behind the segment");
    const Explored::Passage found = explored.passage(row);
    nb::list origins;
    for (const Origin& origin : found.origins)
        origins.append(nb::make_tuple(origin.position, origin.batch, origin.option));
    return nb::make_tuple(found.entry, origins);
}

void bind_trees(nb::module_& m) {
    nb::class_<Trees>(m, "Trees")
        .def(
            "__init__",
            [](Trees* self, std::size_t placements, const Indices& sources, const Indices& targets,
               const Numbers& prices) {
                new (self) Trees(placements, steps(placements, sources, targets, prices));
            },
            "placements"_a, "sources"_a, "targets"_a, "prices"_a)
        .def(
            "price",
            [](Trees& self, Placement source, Placement target) {
                checked(self.placements(), {source, target});
                return number(self.between(source)[at(target)]);
            },
            "source"_a, "target"_a)
        .def(
            "span",
            [](Trees& self, Placement root, Placements used) {
                checked(self.placements(), {root});
                return number(
                    self.span(root, apart_from(root, checked(self.placements(), std::move(used)))));
            },
            "root"_a, "used"_a)
        .def(
            "steps",
            [](Trees& self, Placement root, Placements used) {
                checked(self.placements(), {root});
                return self.steps(root,
                                  apart_from(root, checked(self.placements(), std::move(used))));
            },
            "root"_a, "used"_a);
    nb::class_<Stock>(m, "Stock")
        .def(nb::init<std::shared_ptr<Trees>>(), "trees"_a)
        .def(
            "start",
            [](Stock& self, Placement placement) {
                checked(self.trees().placements(), {placement});
                return self.start(placement);
            },
            "placement"_a);
}

void bind_segment(nb::module_& m) {
    nb::class_<Options>(m, "Options")
        .def(
            "__init__",
            [](Options* self, std::size_t span, const Values& inputs, const Values& outputs,
               const Table& requires_, const Table& gives, const Numbers& prices) {
                new (self) Options(options(span, inputs, outputs, requires_, gives, prices));
            },
            "span"_a, "inputs"_a, "outputs"_a, "requires"_a, "gives"_a, "prices"_a);
    nb::class_<States>(m, "States")
        .def(
            "__init__",
            [](States* self, Holdings held) {
                const std::size_t width = held.size();
                new (self) States{width, std::move(held), {Price{}}};
            },
            "held"_a)
        .def("__len__", &States::size)
        .def("held", held, "row"_a);
    nb::class_<Explored>(m, "Explored")
        .def_ro("exit", &Explored::exit)
        .def_prop_ro("least", [](const Explored& self) { return number(self.least); })
        .def("passage", passage, "exit"_a);
    nb::class_<Segment>(m, "Segment")
        .def(
            "__init__",
            [](Segment* self, Segment::Stocks stocks, std::vector<Values> live,
               const std::vector<Values>& once, const Segment::Stages& stages) {
                check_segment(stocks, live, once, stages);
                new (self) Segment(std::move(stocks), std::move(live), once, stages);
            },
            "stocks"_a, "live"_a, "once"_a, "stages"_a)
        .def(
            "explore",
            [](Segment& self, const States& entry) {
                require(self.takes(entry), "no states of the values that are live at its entry");
                return self.explore(entry);
            },
            "entry"_a);
}

} // namespace

NB_MODULE(_core, m) {
    bind_trees(m);
    bind_segment(m);
}
