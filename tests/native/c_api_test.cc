#include "core/c_api.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/shm/liveness.h"
#include "core/util/status.h"
#include "shm/child_process.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::c_api_test {
namespace {

constexpr int kTimeoutMs = 30000;
constexpr uint64_t kToken = 77;
constexpr tfhybrid_table_config kItem = {"item", 2, 1 /* constant */, 0.5, 0, 99, {},
                                         0,      0, nullptr,          0};
constexpr tfhybrid_optimizer_config kAdagrad = {2, 0, 0.1f, 1e-7f, 0.9, 0.999, 0, 0,
                                                0, 0, 0,    0,     0,   0,     0};

void ExpectCode(StatusCode wanted, int code) {
  EXPECT_EQ(static_cast<int>(wanted), code) << tfhybrid_last_error();
}
void ExpectMessage(const std::string& part) {
  const std::string message = tfhybrid_last_error();
  EXPECT_NE(std::string::npos, message.find(part)) << message;
}

class CApiTest : public testing::Test {
 protected:
  CApiTest() {
    const int64_t hosts[] = {0, 0};
    ExpectCode(StatusCode::kOk, tfhybrid_engine_reserve(hosts, 2, 0, 0, &engine_));
  }
  ~CApiTest() override { tfhybrid_store_close(engine_, 0); }
  int Open(int local_rank) {
    constexpr int64_t kRoom = 256;
    char text[kRoom];
    int64_t size = 0;
    const int code = tfhybrid_store_open(engine_, directory_.path().c_str(), "job", local_rank,
                                         ("rank " + std::to_string(local_rank)).c_str(), kToken,
                                         text, kRoom, &size);
    reclaimed_.assign(text, static_cast<size_t>(std::min(size, kRoom)));
    return code;
  }
  void OpenWithTable() {
    ExpectCode(StatusCode::kOk, Open(0));
    ExpectCode(StatusCode::kOk, tfhybrid_table_open(engine_, &kItem, kTimeoutMs));
  }

  TemporaryDirectory directory_;
  int64_t engine_ = 0;
  std::string reclaimed_;
  int64_t keys_[2] = {4, std::numeric_limits<int64_t>::min()};
  float rows_[4] = {1, 2, 3, 4};
};

TEST_F(CApiTest, WithoutAStoreEveryCallSaysThatInitIsMissing) {
  uint64_t digest;
  int64_t loaded;
  tfhybrid_table_stats stats;
  const tfhybrid_record_schema schema = {0, 16, 0, 8};
  const int codes[] = {
      tfhybrid_table_open(engine_, &kItem, 10),
      tfhybrid_table_set_optimizer(engine_, "item", &kAdagrad),
      tfhybrid_table_stats_get(engine_, "item", &stats),
      tfhybrid_table_digest(engine_, "item", &digest),
      tfhybrid_table_lookup(engine_, "item", 2, keys_, rows_),
      tfhybrid_table_read_rows(engine_, "item", 0, 0, keys_, rows_, nullptr, nullptr),
      tfhybrid_table_write_rows(engine_, "item", 2, keys_, rows_, nullptr, nullptr),
      tfhybrid_table_clear(engine_, "item"),
      tfhybrid_table_load_records(engine_, "item", "/missing", &schema, &loaded),
      tfhybrid_table_set_version(engine_, "item", 1, 0)};
  for (const int code : codes) ExpectCode(StatusCode::kFailedPrecondition, code);
  ExpectMessage("init()");
  ExpectMessage("'item'");
  tfhybrid_store_close(engine_, 0);
}

TEST_F(CApiTest, RowsGoInAndComeOut) {
  OpenWithTable();
  EXPECT_EQ("", reclaimed_);
  ExpectCode(StatusCode::kOk, tfhybrid_table_set_optimizer(engine_, "item", &kAdagrad));
  const float states[4] = {5, 6, 7, 8};
  ExpectCode(StatusCode::kOk,
             tfhybrid_table_write_rows(engine_, "item", 2, keys_, rows_, states, nullptr));
  ExpectCode(StatusCode::kOk, tfhybrid_table_set_version(engine_, "item", 3, 0));
  const int64_t wanted[3] = {keys_[1], 0, keys_[0]};
  float found[6];
  ExpectCode(StatusCode::kOk, tfhybrid_table_lookup(engine_, "item", 3, wanted, found));
  EXPECT_EQ((std::vector<float>{3, 4, 0.5, 0.5, 1, 2}), std::vector<float>(found, found + 6));

  int64_t read_keys[2];
  float read_rows[4], read_states[4];
  ExpectCode(StatusCode::kOk, tfhybrid_table_read_rows(engine_, "item", 0, 2, read_keys, read_rows,
                                                       read_states, nullptr));
  EXPECT_EQ(0, std::memcmp(keys_, read_keys, sizeof(keys_)));
  EXPECT_EQ(0, std::memcmp(rows_, read_rows, sizeof(rows_)));
  EXPECT_EQ(0, std::memcmp(states, read_states, sizeof(states)));

  tfhybrid_table_stats stats;
  ExpectCode(StatusCode::kOk, tfhybrid_table_stats_get(engine_, "item", &stats));
  EXPECT_EQ(2, stats.rows);
  EXPECT_EQ(3, stats.version);
  EXPECT_EQ(stats.bytes, stats.embedding_bytes + stats.state_bytes + stats.index_bytes + 4096);
  uint64_t digest = 0;
  ExpectCode(StatusCode::kOk, tfhybrid_table_digest(engine_, "item", &digest));
  EXPECT_NE(0u, digest);

  ExpectCode(StatusCode::kOk, tfhybrid_table_clear(engine_, "item"));
  ExpectCode(StatusCode::kOk, tfhybrid_table_digest(engine_, "item", &digest));
  EXPECT_EQ(0u, digest);
}

TEST_F(CApiTest, SeveralTablesAreReadAtOneVersion) {
  OpenWithTable();
  constexpr tfhybrid_table_config kUser = {"user", 1, 1 /* constant */, 0.25, 0, 99, {},
                                           0,      0, nullptr,          0};
  ExpectCode(StatusCode::kOk, tfhybrid_table_open(engine_, &kUser, kTimeoutMs));
  ExpectCode(StatusCode::kOk,
             tfhybrid_table_write_rows(engine_, "item", 2, keys_, rows_, nullptr, nullptr));
  ExpectCode(StatusCode::kOk, tfhybrid_table_set_version(engine_, "item", 3, 0));
  const char* const names[] = {"user", "item"};
  const int64_t counts[] = {1, 2};
  const int64_t* const keys[] = {keys_, keys_};
  float user[1], item[4];
  float* const rows[] = {user, item};
  uint64_t versions[2];
  ExpectCode(StatusCode::kOk,
             tfhybrid_read(engine_, 2, names, nullptr, counts, keys, rows, 10, versions));
  EXPECT_EQ((std::vector<float>{0.25, 1, 2, 3, 4}),
            (std::vector<float>{user[0], item[0], item[1], item[2], item[3]}));
  EXPECT_EQ(0u, versions[0]);
  EXPECT_EQ(3u, versions[1]);
  const uint64_t too_new[] = {0, 4};
  ExpectCode(StatusCode::kDeadlineExceeded,
             tfhybrid_read(engine_, 2, names, too_new, counts, keys, rows, 10, versions));
  const char* const unknown[] = {"user", "items"};
  ExpectCode(StatusCode::kNotFound,
             tfhybrid_read(engine_, 2, unknown, nullptr, counts, keys, rows, 10, versions));
}

TEST_F(CApiTest, ErrorsKeepTheirCodesAndWords) {
  OpenWithTable();
  ExpectCode(StatusCode::kFailedPrecondition, Open(0));
  ExpectMessage("open already");
  ExpectCode(StatusCode::kAlreadyExists, tfhybrid_table_open(engine_, &kItem, kTimeoutMs));
  ExpectMessage("'item'");
  const tfhybrid_table_config wrong = {"wrong", 0, 1, 0, 0, 0, {}, 0, 0, nullptr, 0};
  ExpectCode(StatusCode::kInvalidArgument, tfhybrid_table_open(engine_, &wrong, kTimeoutMs));
  ExpectMessage("Received: 0");
  const tfhybrid_table_config unknown_kind = {"wrong", 2, 12345, 0, 0, 0, {}, 0, 0, nullptr, 0};
  ExpectCode(StatusCode::kInvalidArgument, tfhybrid_table_open(engine_, &unknown_kind, kTimeoutMs));
  ExpectCode(StatusCode::kNotFound, tfhybrid_table_lookup(engine_, "other", 2, keys_, rows_));
  ExpectMessage("'other'");
  ExpectCode(StatusCode::kInvalidArgument,
             tfhybrid_table_read_rows(engine_, "item", 0, 1, keys_, rows_, nullptr, nullptr));
  ExpectMessage("count=1");
  tfhybrid_optimizer_config optimizer = kAdagrad;
  optimizer.kind = 9;
  ExpectCode(StatusCode::kInvalidArgument,
             tfhybrid_table_set_optimizer(engine_, "item", &optimizer));
  ExpectCode(StatusCode::kSystem, tfhybrid_table_lookup(engine_, nullptr, 2, keys_, rows_));
}

TEST_F(CApiTest, AProcessHasItsPartInAJob) {
  const int64_t hosts[] = {0, 0};
  ExpectCode(StatusCode::kInvalidArgument, tfhybrid_engine_reserve(hosts, 2, 0, 1, &engine_));
  ExpectMessage("2 entries, none of them host 1");
}

TEST_F(CApiTest, MessageIsThatOfTheCallingThread) {
  ExpectCode(StatusCode::kFailedPrecondition, tfhybrid_table_clear(engine_, "mine"));
  std::thread([this] {
    EXPECT_STREQ("", tfhybrid_last_error());
    tfhybrid_table_clear(engine_, "others");
  }).join();
  ExpectMessage("'mine'");
}

TEST_F(CApiTest, RecordFileIsLoaded) {
  OpenWithTable();
  const std::string path = directory_.File("records");
  std::string bytes(reinterpret_cast<const char*>(keys_), 8);
  bytes.append(reinterpret_cast<const char*>(rows_), 8);
  std::ofstream(path, std::ios::binary) << bytes;
  const tfhybrid_record_schema schema = {0, 16, 0, 8};
  int64_t loaded = 0;
  ExpectCode(StatusCode::kOk,
             tfhybrid_table_load_records(engine_, "item", path.c_str(), &schema, &loaded));
  EXPECT_EQ(1, loaded);
  float found[2];
  ExpectCode(StatusCode::kOk, tfhybrid_table_lookup(engine_, "item", 1, keys_, found));
  EXPECT_EQ(2, found[1]);
  ExpectCode(StatusCode::kNotFound,
             tfhybrid_table_load_records(engine_, "item", "/missing", &schema, &loaded));
}

TEST_F(CApiTest, OnlyTheLeaderWrites) {
  OpenWithTable();
  ExpectCode(StatusCode::kOk,
             tfhybrid_table_write_rows(engine_, "item", 2, keys_, rows_, nullptr, nullptr));
  ExpectCode(StatusCode::kOk, tfhybrid_table_set_version(engine_, "item", 1, 0));
  const auto other_rank = [&] {
    // Forked with the leader's store open, which a rank never is: it lets go of it first.
    tfhybrid_store_close(engine_, 0);
    ExpectCode(StatusCode::kOk, Open(1));
    ExpectCode(StatusCode::kOk, tfhybrid_table_open(engine_, &kItem, kTimeoutMs));
    ExpectCode(StatusCode::kOk, tfhybrid_table_set_version(engine_, "item", 1, 0));
    float found[4];
    ExpectCode(StatusCode::kOk, tfhybrid_table_lookup(engine_, "item", 2, keys_, found));
    EXPECT_EQ(4, found[3]);
    const auto refused = StatusCode::kFailedPrecondition;
    ExpectCode(refused,
               tfhybrid_table_write_rows(engine_, "item", 2, keys_, rows_, nullptr, nullptr));
    ExpectMessage("leader");
    ExpectCode(refused, tfhybrid_table_clear(engine_, "item"));
    ExpectCode(refused, tfhybrid_table_set_optimizer(engine_, "item", &kAdagrad));
    int64_t keys[2];
    ExpectCode(StatusCode::kOk,
               tfhybrid_table_read_rows(engine_, "item", 0, 2, keys, found, nullptr, nullptr));
    ExpectCode(refused,
               tfhybrid_table_read_rows(engine_, "item", 0, 2, keys, found, found, nullptr));
    tfhybrid_store_close(engine_, 0);
  };
  RunInChild(other_rank);
  ExpectCode(StatusCode::kOk, tfhybrid_table_lookup(engine_, "item", 2, keys_, rows_));
}

TEST_F(CApiTest, WhatADeadJobLeftIsReported) {
  ChildProcess dead([&] { OpenWithTable(); });
  dead.Kill();
  ExpectCode(StatusCode::kOk, Open(0));
  EXPECT_NE(std::string::npos, reclaimed_.find("bytes left by rank 0\n")) << reclaimed_;
}

TEST_F(CApiTest, WhatBecameOfARankIsTold) {
  int state = -1;
  char text[9] = "........";
  int64_t size = 0;
  const auto ask = [&](int64_t room) {
    return tfhybrid_rank_state(engine_, 1, &state, text, room, &size);
  };
  ExpectCode(StatusCode::kFailedPrecondition, ask(8));
  ExpectCode(StatusCode::kOk, Open(0));
  ChildProcess member([&] {
    tfhybrid_store_close(engine_, 0);
    ExpectCode(StatusCode::kOk, Open(1));
  });
  ExpectCode(StatusCode::kOk, ask(0));
  EXPECT_EQ(static_cast<int>(HolderState::kLiving), state);
  EXPECT_EQ(6, size);
  EXPECT_STREQ("........", text) << "without room nothing is written";
  member.Kill();
  ExpectCode(StatusCode::kOk, ask(4));
  EXPECT_STREQ("rank....", text) << "no more than there is room for";
  ExpectCode(StatusCode::kOk, ask(8));
  EXPECT_EQ(static_cast<int>(HolderState::kDied), state);
  EXPECT_STREQ("rank 1..", text);
}

// What waitpid() says of a child that runs `body` and then waits for its end.
int WaitStatusOf(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    while (true) pause();
  }
  int status = 0;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  return status;
}

void ExpectEndedBySigterm(int status) {
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(SIGTERM, WTERMSIG(status));
}

TEST_F(CApiTest, ProcessThatDoesNotEndIsEnded) {
  const int status = WaitStatusOf([] { tfhybrid_exit_after(20); });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(1, WEXITSTATUS(status));
}

TEST_F(CApiTest, ProcessLingersAfterSigterm) {
  ExpectEndedBySigterm(WaitStatusOf([] {
    tfhybrid_linger_after_sigterm(1);
    if (tfhybrid_is_lingering()) _exit(1);
    raise(SIGTERM);
    if (!tfhybrid_is_lingering()) _exit(2);
  }));
}

TEST_F(CApiTest, SecondSigtermEndsAtOnce) {
  ExpectEndedBySigterm(WaitStatusOf([] {
    tfhybrid_linger_after_sigterm(1'000'000);
    raise(SIGTERM);
    raise(SIGTERM);
  }));
}

TEST_F(CApiTest, SigtermIsGivenBack) {
  ExpectEndedBySigterm(WaitStatusOf([] {
    for (int time = 0; time < 2; ++time) {
      tfhybrid_linger_after_sigterm(1'000'000);
      tfhybrid_linger_after_sigterm(0);
    }
    raise(SIGTERM);
  }));
}

#ifndef __SANITIZE_THREAD__  // it delivers no signals to a child of a process with threads

TEST_F(CApiTest, ForkedChildDoesNotLinger) {
  RunInChild([] {
    tfhybrid_linger_after_sigterm(1'000'000);
    ExpectEndedBySigterm(WaitStatusOf([] { raise(SIGTERM); }));
  });
}

// The thread that lingers may hold a lock of AddressSanitizer's allocator while it starts. A child
// that is forked then never sees it released.
#ifndef __SANITIZE_ADDRESS__

TEST_F(CApiTest, ForkedChildLingersIfItAsks) {
  RunInChild([] {
    tfhybrid_linger_after_sigterm(1'000'000);
    ExpectEndedBySigterm(WaitStatusOf([] {
      tfhybrid_linger_after_sigterm(1);
      raise(SIGTERM);
      if (!tfhybrid_is_lingering()) _exit(2);
    }));
  });
}

#endif  // __SANITIZE_ADDRESS__

TEST_F(CApiTest, OtherThreadsGoOnBeforeTerminateEndsTheProcess) {
  const int status = WaitStatusOf([] {
    tfhybrid_linger_after_sigterm(1'000'000);
    std::atomic<bool> terminating{false};
    std::thread watch([&] {
      while (!terminating) std::this_thread::yield();
      _exit(3);
    });
    terminating = true;
    std::terminate();
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(3, WEXITSTATUS(status));
}

#endif  // __SANITIZE_THREAD__

TEST_F(CApiTest, SigtermThatTheProgramHandlesIsLeftAlone) {
  RunInChild([] {
    signal(SIGTERM, SIG_IGN);
    tfhybrid_linger_after_sigterm(1);
    tfhybrid_linger_after_sigterm(0);
    raise(SIGTERM);
    EXPECT_FALSE(tfhybrid_is_lingering());
  });
}

TEST_F(CApiTest, ClosedStoreCanBeOpenedAgain) {
  OpenWithTable();
  tfhybrid_store_close(engine_, 0);
  OpenWithTable();
  EXPECT_EQ("", reclaimed_);
}

TEST_F(CApiTest, PureFunctionsNeedNoStore) {
  float rows[4];
  ExpectCode(StatusCode::kOk, tfhybrid_initial_rows(1, 0.25, 0, 1, 2, keys_, 2, rows));
  EXPECT_EQ(std::vector<float>(4, 0.25f), std::vector<float>(rows, rows + 4));
  ExpectCode(StatusCode::kInvalidArgument, tfhybrid_initial_rows(99, 0, 0, 1, 2, keys_, 2, rows));
  EXPECT_NE(tfhybrid_table_seed(1, "a"), tfhybrid_table_seed(1, "b"));
  EXPECT_EQ(0xe3069283u, tfhybrid_crc32c("123456789", 9, 0));
  EXPECT_GT(tfhybrid_available_bytes(directory_.path().c_str()), 0);
  EXPECT_EQ(0, tfhybrid_available_bytes("/missing"));
}

}  // namespace
}  // namespace tfhybrid::c_api_test
