// OwnerLinks: this process's connections to the leaders of the other hosts, which own rows.
//
// There are three to each: one on which any rank reads rows, one on which a leader sends updates,
// and one for what leaders say of passes. Python makes them (tfhybrid/job/row_service.py).
// Thread-safe, while none is made. One may replace another between steps: rows have moved.
#ifndef TFHYBRID_CORE_ENGINE_OWNER_LINKS_H_
#define TFHYBRID_CORE_ENGINE_OWNER_LINKS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/exchange/connection.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

// What a connection is for. Numbers are part of the C interface.
enum class LinkPurpose : int { kReads = 0, kUpdates = 1, kPasses = 2 };

class OwnerLinks {
 public:
  // The links of `host`, one of `hosts`.
  OwnerLinks(int64_t hosts, int64_t host)
      : host_(host),
        names_(static_cast<size_t>(hosts)),
        reads_(names_.size()),
        updates_(reads_.size()),
        passes_(reads_.size()) {}

  // Names a host in errors before there is a connection to it; Add() does so, too.
  // REQUIRES: CheckOther() is ok.
  void SetName(int64_t host, std::string name);
  // The name, with the number of the host.
  std::string NameOf(int64_t host) const;
  // Ok for the number of another host.
  Status CheckOther(int64_t host) const;
  // REQUIRES: CheckOther() is ok.
  void Add(int64_t host, LinkPurpose purpose, std::unique_ptr<Connection> connection);
  // Ends those on which this process reads rows.
  void ShutReads();
  // Ends all of them.
  void Shut();

  // A connection for reads, for exclusive use by the caller while `lock` is held.
  struct HeldLink {
    Connection* connection;
    std::unique_lock<Mutex> lock;
  };
  // The lock leaves it, which clang cannot follow.
  Result<HeldLink> HoldReads(int64_t host) TFHYBRID_NO_THREAD_SAFETY_ANALYSIS;
  Result<Connection*> Updates(int64_t host) const { return Of(updates_, host); }
  Result<Connection*> Passes(int64_t host) const { return Of(passes_, host); }

 private:
  struct Link {
    mutable Mutex mutex;
    std::unique_ptr<Connection> connection TFHYBRID_GUARDED_BY(mutex);
  };

  // Takes no lock, so clang cannot check it: a thread that holds one may be waiting for the
  // connection that ends here.
  static void ShutAll(const std::vector<Link>& links) TFHYBRID_NO_THREAD_SAFETY_ANALYSIS;
  Result<Connection*> Of(const std::vector<Link>& links, int64_t host) const;
  Status Missing(int64_t host) const;
  std::vector<Link>& LinksFor(LinkPurpose purpose);

  const int64_t host_;
  mutable Mutex naming_;
  std::vector<std::string> names_ TFHYBRID_GUARDED_BY(naming_);  // by host; empty if unknown
  std::vector<Link> reads_, updates_, passes_;                   // by host
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_OWNER_LINKS_H_
