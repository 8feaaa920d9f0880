// y = x · wᵀ for few rows of x: every weight byte is read once.
#pragma once
namespace tskernels::cpu {}
