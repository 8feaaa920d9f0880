// What is worth taking depends on how that is held which is read: it is worked out once for each
// such.
#include "ways.h"

#include <algorithm>

namespace tssearch {

namespace {

template <class Items, class Same>
std::optional<std::size_t> find_in(const Items& items, const Same& same) {
    const auto found = std::find_if(items.begin(), items.end(), same);
    if (found == items.end()) return std::nullopt;
    return static_cast<std::size_t>(found - items.begin());
}

std::optional<std::size_t> operand_of(const std::vector<Operand>& operands, Value value) {
    return find_in(operands, [&](const Operand& operand) { return operand.value == value; });
}

std::optional<std::size_t> column_of(const Values& values, Value value) {
    return find_in(values, [&](Value one) { return one == value; });
}

} // namespace

Ways::Ways(Options options, const Values& before, const Values& after,
           const std::vector<std::shared_ptr<Stock>>& stocks, Rivals gives)
    : options_(std::move(options)), gives_(std::move(gives)), known_(options_.reads.size()) {
    for (const Operand& operand : options_.reads)
        reads_.push_back({&operand.placements, stocks[at(operand.value)].get(),
                          column_of(before, operand.value).value(),
                          column_of(after, operand.value).has_value()});
    for (const Value value : after) {
        const auto given = operand_of(options_.gives, value);
        const auto read = operand_of(options_.reads, value);
        if (!given && !read) {
            becomes_.push_back({false, column_of(before, value).value()});
            continue;
        }
        const Operand& operand = given ? options_.gives[*given] : options_.reads[*read];
        becomes_.push_back({true, touched_.size()});
        touched_.push_back(
            {&operand.placements, stocks[at(value)].get(), given ? std::nullopt : read});
    }
}

void Ways::expand(std::int32_t position, const States& states, Pool& pool) {
    Holdings held(reads_.size());
    Holdings after(becomes_.size());
    for (std::size_t row = 0; row < states.size(); ++row) {
        const Row before = states[row];
        for (std::size_t i = 0; i < reads_.size(); ++i)
            held[i] = before[reads_[i].column];
        const Choices& taken = choices(held);
        for (std::size_t i = 0; i < taken.options.size(); ++i) {
            const Holding* touched = taken.touched.data() + i * touched_.size();
            for (std::size_t k = 0; k < after.size(); ++k)
                after[k] =
                    becomes_[k].touched ? touched[becomes_[k].column] : before[becomes_[k].column];
            const std::size_t option = at(taken.options[i]);
            pool.add(after, states.prices[row] + taken.prices[i],
                     {position, static_cast<std::int32_t>(row), options_.batch[option],
                      options_.column[option]});
        }
    }
}

const Choices& Ways::choices(Row held) {
    const auto [number, fresh] = known_.add(held);
    if (fresh) choices_.push_back(worked_out(held));
    return choices_[number];
}

// An option is beaten by one that comes to less, or to as much and is met sooner, even when it goes
// on to give what this one gives, and what it needs of values that stay live is grafted onto their
// trees.
Choices Ways::worked_out(Row held) {
    Prices once = options_.prices; // without what the values that stay live cost
    Prices prices = options_.prices;
    std::vector<Prices> grafts(reads_.size());
    for (std::size_t i = 0; i < reads_.size(); ++i) {
        const Read& read = reads_[i];
        for (std::size_t option = 0; option < prices.size(); ++option) {
            const Placement placement = (*read.placements)[option];
            const Price price = read.stock->reach(held[i], placement);
            prices[option] = prices[option] + price;
            if (read.stays)
                grafts[i].push_back(read.stock->grafted(held[i], placement));
            else
                once[option] = once[option] + price;
        }
    }
    const std::vector<std::size_t> order = by_price(once);
    Choices worth;
    for (std::size_t option = 0; option < prices.size(); ++option) {
        const Price limit = once[option] + gives_.ease(option);
        const auto beats = [&](std::size_t rival) {
            const bool sooner = prices[rival] < prices[option] ||
                                (prices[rival] == prices[option] && rival < option);
            const Price bound = sooner ? limit : limit - Price{0, 1};
            Price price = once[rival];
            for (std::size_t i = 0; i < reads_.size() && price <= bound; ++i)
                if (reads_[i].stays)
                    price = price + grafted(i, grafts[i][rival], rival, option, bound - price);
            return gives_.within(price, rival, option, bound);
        };
        if (std::any_of(order.begin(), order.end(), beats)) continue;
        worth.options.push_back(static_cast<std::int32_t>(option));
        worth.prices.push_back(prices[option]);
        touch(held, option, worth.touched);
    }
    return worth;
}

Price Ways::grafted(std::size_t read, const Price& graft, std::size_t rival, std::size_t option,
                    const Price& limit) const {
    Trees& trees = reads_[read].stock->trees();
    const Placement ours = (*reads_[read].placements)[rival];
    const Placement theirs = (*reads_[read].placements)[option];
    if (graft <= limit || limit < trees.least(theirs, ours)) return graft;
    return std::min(graft, trees.path(theirs, ours));
}

void Ways::touch(Row held, std::size_t option, Holdings& touched) const {
    for (const Touched& value : touched_) {
        const Placement placement = (*value.placements)[option];
        touched.push_back(value.read ? value.stock->used(held[*value.read], placement)
                                     : value.stock->start(placement));
    }
}

} // namespace tssearch
