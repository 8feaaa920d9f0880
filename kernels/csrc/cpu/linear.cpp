#include "cpu/linear.h"
