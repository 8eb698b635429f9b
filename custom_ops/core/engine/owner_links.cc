#include "core/engine/owner_links.h"

#include <utility>

namespace tfhybrid {

Status OwnerLinks::Missing(int64_t host) const {
  return Status::Error(StatusCode::kFailedPrecondition, "There is no connection to ", NameOf(host),
                       ", which owns rows");
}

void OwnerLinks::SetName(int64_t host, std::string name) {
  const MutexLock guard(naming_);
  names_[static_cast<size_t>(host)] = std::move(name);
}

std::string OwnerLinks::NameOf(int64_t host) const {
  const std::string number = "host " + std::to_string(host);
  const MutexLock guard(naming_);
  const std::string& name = names_[static_cast<size_t>(host)];
  return name.empty() ? number : name + " (" + number + ")";
}

std::vector<OwnerLinks::Link>& OwnerLinks::LinksFor(LinkPurpose purpose) {
  if (purpose == LinkPurpose::kReads) return reads_;
  return purpose == LinkPurpose::kUpdates ? updates_ : passes_;
}

Status OwnerLinks::CheckOther(int64_t host) const {
  const auto hosts = static_cast<int64_t>(reads_.size());
  if (host >= 0 && host < hosts && host != host_) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "A connection is with another of ", hosts,
                       " hosts than ", host_, ". Received: ", host);
}

void OwnerLinks::Add(int64_t host, LinkPurpose purpose, std::unique_ptr<Connection> connection) {
  SetName(host, connection->peer());
  Link& link = LinksFor(purpose)[static_cast<size_t>(host)];
  const MutexLock guard(link.mutex);
  link.connection = std::move(connection);
}

void OwnerLinks::ShutReads() { ShutAll(reads_); }

void OwnerLinks::Shut() {
  for (const std::vector<Link>* links : {&reads_, &updates_, &passes_}) ShutAll(*links);
}

void OwnerLinks::ShutAll(const std::vector<Link>& links) {
  for (const Link& link : links) {
    if (link.connection != nullptr) link.connection->Shut();
  }
}

Result<OwnerLinks::HeldLink> OwnerLinks::HoldReads(int64_t host) {
  Link& link = reads_[static_cast<size_t>(host)];
  std::unique_lock<Mutex> lock(link.mutex);
  if (link.connection == nullptr) return Missing(host);
  return HeldLink{link.connection.get(), std::move(lock)};
}

Result<Connection*> OwnerLinks::Of(const std::vector<Link>& links, int64_t host) const {
  const Link& link = links[static_cast<size_t>(host)];
  const MutexLock guard(link.mutex);
  if (link.connection == nullptr) return Missing(host);
  return link.connection.get();
}

}  // namespace tfhybrid
