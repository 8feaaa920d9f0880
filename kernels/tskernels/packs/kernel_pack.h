// What a kernel pack exports: functions of one C signature, and the number of that signature.
//
// A call is an array of addresses, one of integers and one of reals, laid down at build in the
// order that the kernel's author chose; only the addresses differ between processes. A call puts
// its work on `stream` of GPU `device` and waits for nothing. It returns 0, or anything else after
// writing why into `error`.

#pragma once

#include <cstdint>

#define TS_PACK_ABI 1

#define TS_PACK_EXPORT extern "C" __attribute__((visibility("default")))

using TsPackCall = int32_t (*)(const uint64_t* addresses, const int64_t* integers,
                               const double* reals, int32_t device, void* stream, char* error,
                               int64_t error_bytes);

TS_PACK_EXPORT int32_t ts_pack_abi();
