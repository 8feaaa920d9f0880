// The scheduler's public interface.
#pragma once
namespace tsscheduler {}
