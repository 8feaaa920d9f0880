// Which states no cheaper one can imitate.
#pragma once

#include "frontier.h"
#include "imitation.h"

namespace tssearch {

// Without the states that a cheaper one can imitate by reshards for no more. `frontier` comes by
// price; ties go to the state that was found first. `uses` are those of each live value.
Frontier undominated(const Frontier& frontier, const std::vector<Uses>& uses);

} // namespace tssearch
