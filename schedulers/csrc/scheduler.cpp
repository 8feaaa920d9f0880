#include "scheduler.h"
