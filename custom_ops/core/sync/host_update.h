// HostUpdate: the updates of one optimizer on one host: the mailboxes of its ranks and, on the
// leader, what applies them.
//
// Files in the store's directory, for an update named NAME:
//
//   NAME.R.mail, NAME.R.mail.G    mailbox of local rank R, where each rank posts its own message
//   NAME.all.mail, ...            the leader's own, where it gets the messages of all ranks at once
//   NAME.journal                  what the leader is applying
//
// A rank's posts are one thread's at a time, and so is the leader's half; the two may run at once.
#ifndef TFHYBRID_CORE_SYNC_HOST_UPDATE_H_
#define TFHYBRID_CORE_SYNC_HOST_UPDATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/store/store.h"
#include "core/sync/mailbox.h"
#include "core/sync/table_update.h"
#include "core/sync/update_journal.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class HostUpdate {
 public:
  // The update of that name of the store, opened by this process when first asked for. Thread-safe.
  static Result<std::shared_ptr<HostUpdate>> Named(const std::shared_ptr<Store>& store,
                                                   const std::string& name,
                                                   const UpdateSettings& settings);

  const UpdateSettings& settings() const { return settings_; }

  // Posts the message of `key_counts` keys per table that `fill` writes. Where it cannot, the
  // leader is told. REQUIRES: the tables have reached the version that the last post led to.
  Status Post(Span<const int64_t> key_counts,
              const std::function<void(const MessageBuilder&)>& fill);
  // Posts the messages of all ranks, end to end. REQUIRES: the leader, and as for Post().
  Status PostAll(Span<const int64_t> words);

  // The leader's half: waits for the next message of every rank; kPeerDied if one will not come.
  Result<std::vector<GradientMessage>> Collect();
  // And applies them. REQUIRES: the writers are the caller's alone.
  Status Apply(const std::vector<GradientMessage>& messages, Span<const float> learning_rates,
               const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);

 private:
  HostUpdate(const std::shared_ptr<Store>& store, std::string name, UpdateSettings settings)
      : store_(store), name_(std::move(name)), settings_(std::move(settings)) {}
  std::string Path(const std::string& what) const;
  Result<MailboxReader> OpenMailbox(const std::string& which, int local_rank) const;
  Status OpenJournal(const std::vector<TableWriter*>& tables);

  const std::weak_ptr<Store> store_;
  std::string directory_;
  uint64_t token_ = 0;
  const std::string name_;
  const UpdateSettings settings_;
  std::optional<Mailbox> mailbox_;
  // The leader's.
  uint64_t led_ = 0;  // messages of each rank that were waited for
  std::vector<MailboxReader> readers_;
  std::unique_ptr<TableUpdate> update_;
};

// The messages in the mailboxes of an update, as the leader reads them.
Result<std::vector<GradientMessage>> ReadMessages(const UpdateSettings& settings,
                                                  std::vector<MailboxReader>* readers);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SYNC_HOST_UPDATE_H_
