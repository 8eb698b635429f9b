// Engines of several hosts in one process, with a table "item" whose rows are sharded.
#ifndef TFHYBRID_TESTS_NATIVE_ENGINE_SHARDED_HOSTS_H_
#define TFHYBRID_TESTS_NATIVE_ENGINE_SHARDED_HOSTS_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/engine.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

namespace tfhybrid::sharded_hosts {

constexpr int64_t kDim = 2;
constexpr Placement kSharded = {PlacementKind::kByKey, 0};
inline const UpdateChoices kChoices = {"leaders", "sum", "float32", "none", 0.0f};

inline Contribution OneSample() {
  Contribution contribution;
  contribution.samples = 1;
  return contribution;
}

// All start at zero and add 1 to each number of a key's row for each gradient of -1.
class ShardedHosts : public testing::Test {
 protected:
  ~ShardedHosts() override {
    for (const auto& engine : engines_) engine->Close();
    for (std::thread& relay : relays_) relay.join();
    if (held_ >= 0) close(held_);
  }

  // What goes between two engines instead of their connection.
  using Between = std::function<void(int64_t from, int64_t to, LinkPurpose, int sockets[2])>;

  // Passes on what a leader sends of updates to another one. `crosses` is told of each frame
  // before; if it says no, the connection ends.
  Between Relay(int64_t from, int64_t to, const std::function<bool(FrameKind)>& crosses) {
    return [=](int64_t source, int64_t target, LinkPurpose purpose, int sockets[2]) {
      if (source != from || target != to || purpose != LinkPurpose::kUpdates) return;
      int beyond[2];
      ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, beyond));
      relays_.emplace_back([crosses, in = sockets[1], out = beyond[0]] {
        Connection near(in, "the source", Status::Ok), far(out, "the target", Status::Ok);
        for (Result<Frame> frame = near.Receive(); frame.ok() && crosses(frame.value().kind);
             frame = near.Receive()) {
          if (!far.Send(frame.value().kind, {frame.value().payload.words()}).ok()) break;
        }
      });
      sockets[1] = beyond[1];
    };
  }

  void Open(int64_t hosts, const UpdateChoices& choices = kChoices,
            const Between& between = nullptr) {
    Topology topology = {std::vector<int64_t>(static_cast<size_t>(hosts)), 0};
    std::iota(topology.hosts.begin(), topology.hosts.end(), 0);
    for (int64_t host = 0; host < hosts; ++host) {
      topology.host = host;
      std::vector<std::string> reclaimed;
      engines_.push_back(Engine::Open({directory_.path(), "host" + std::to_string(host), 0,
                                       "rank " + std::to_string(host), kToken},
                                      topology, &reclaimed)
                             .Take());
      EXPECT_OK(engines_.back()->tables().Open({"item", kDim, {InitializerKind::kZeros, 0, 0}, 99},
                                               kSharded, 0));
      tables_.push_back(engines_.back()->tables().Get("item").Take());
      EXPECT_OK(tables_.back()->writer->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
    }
    for (int64_t from = 0; from < hosts; ++from) {
      for (int64_t to = 0; to < hosts; ++to) {
        if (from == to) continue;
        for (const LinkPurpose purpose :
             {LinkPurpose::kReads, LinkPurpose::kUpdates, LinkPurpose::kPasses}) {
          int sockets[2];
          ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
          if (between != nullptr) between(from, to, purpose, sockets);
          At(from)->owners().links().Add(to, purpose,
                                         At(from)->Adopt(sockets[0], "rank " + std::to_string(to)));
          At(to)->owners().service().Serve(
              from, purpose, At(to)->Adopt(sockets[1], "rank " + std::to_string(from)));
        }
      }
    }
    for (const auto& engine : engines_) {
      updates_.push_back(
          engine->Update(engine->OpenUpdate("sgd", {"item"}, choices).Take()).Take());
    }
  }

  Engine* At(int64_t host) const { return engines_[static_cast<size_t>(host)].get(); }

  Status Post(size_t host, const std::vector<int64_t>& keys, float rate = 1.0f) const {
    const std::vector<float> gradients(keys.size() * kDim, -1.0f);
    return At(static_cast<int64_t>(host))
        ->Post(updates_[host], {{keys, gradients.data(), RowLayout::Array(kDim)}}, OneSample(),
               {{rate}}, RunInline);
  }
  // A step. Each host waits for the one before, as ranks do: until it is applied, its mailbox is
  // read.
  void Train(const std::vector<int64_t>& keys) const {
    for (size_t host = 0; host < engines_.size(); ++host) {
      ASSERT_OK(Wait(host));
      ASSERT_OK(Post(host, keys));
    }
  }
  // Those of the keys that a host owns.
  std::vector<int64_t> KeysOf(int64_t host, const std::vector<int64_t>& keys) const {
    std::vector<int64_t> owned;
    const auto allocation = At(0)->tables().AllocationOf("item");
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(owned),
                 [&](int64_t key) { return allocation->OwnerOf(key) == host; });
    return owned;
  }
  Status Wait(size_t host) const {
    return At(static_cast<int64_t>(host))->WaitForVersion(*tables_[host], tables_[host]->posted);
  }
  // Rows of the posted version or a later one.
  Result<std::vector<float>> Lookup(size_t host, const std::vector<int64_t>& keys) const {
    Engine* const engine = At(static_cast<int64_t>(host));
    TFHYBRID_ASSIGN_OR_RETURN(
        const auto fetched,
        engine->owners().Fetch({{tables_[host], engine->tables().AllocationOf("item"), keys}},
                               RunInline));
    std::vector<float> rows(keys.size() * kDim);
    fetched->Lookup(0, 0, static_cast<int64_t>(keys.size()),
                    RowCursor<float>(rows.data(), RowLayout::Array(kDim), 0));
    return rows;
  }
  Result<std::vector<float>> Read(size_t host, const std::vector<int64_t>& keys) const {
    TFHYBRID_RETURN_IF_ERROR(Wait(host));
    return Lookup(host, keys);
  }

  TemporaryDirectory directory_;
  std::vector<std::shared_ptr<Engine>> engines_;
  OpenTables tables_;
  std::vector<UpdateInUse> updates_;
  std::vector<std::thread> relays_;
  int held_ = -1;  // a second descriptor of a connection
};

inline std::vector<int64_t> Keys(int64_t count) {
  std::vector<int64_t> keys(static_cast<size_t>(count));
  std::iota(keys.begin(), keys.end(), -count / 2);
  return keys;
}

}  // namespace tfhybrid::sharded_hosts

#endif  // TFHYBRID_TESTS_NATIVE_ENGINE_SHARDED_HOSTS_H_
