// What tests say about a Status or a Result.
#ifndef TFHYBRID_TESTS_NATIVE_SHM_STATUS_ASSERTS_H_
#define TFHYBRID_TESTS_NATIVE_SHM_STATUS_ASSERTS_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "core/util/status.h"

namespace tfhybrid {

inline Status StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

// Only an error has a message.
#define EXPECT_OK(expression) EXPECT_EQ("", ::tfhybrid::StatusOf(expression).message())
#define ASSERT_OK(expression) ASSERT_EQ("", ::tfhybrid::StatusOf(expression).message())

// An error of that code whose message holds all `parts`.
inline void ExpectError(const Status& status, StatusCode code,
                        std::initializer_list<std::string> parts) {
  EXPECT_EQ(static_cast<int>(code), static_cast<int>(status.code())) << status.message();
  for (const std::string& part : parts) {
    EXPECT_NE(std::string::npos, status.message().find(part))
        << "wanted '" << part << "' in: " << status.message();
  }
}

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_SHM_STATUS_ASSERTS_H_
