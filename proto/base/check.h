// A check of what the code itself must keep, such as a function's precondition. It stays in release
// builds, where assert() is gone. SYNCD_CHECK throws InternalError, and the code that runs the
// thread's loop ends it: syncd logs it and aborts, an embedded daemon stops with SYNCD_E_INTERNAL,
// and so does a client.
//
// Bytes from outside or from a disk never reach a check: what they may be wrong in is an error with
// a sentence of its own. No destructor and no noexcept function has a check: there, it would end
// the process of a program that embeds the daemon or a client.
#pragma once

#include <stdexcept>

namespace syncd {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn, gnu::cold]] void check_failed(const char* condition, const char* file, int line);

}  // namespace syncd

#define SYNCD_CHECK(condition)                         \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::syncd::check_failed(#condition, __FILE__, __LINE__))
