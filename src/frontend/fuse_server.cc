#include "frontend/fuse_server.h"

#include <utility>

#include "frontend/fuse_session.h"

namespace eplog {

Result<std::unique_ptr<FuseServer>> FuseServer::Mount(IoUringLoop& loop, Array& array,
                                                      FuseOptions options) {
  auto session = std::make_unique<FuseSession>(loop, array, std::move(options));
  EPLOG_TRY(session->Mount());
  return std::unique_ptr<FuseServer>(new FuseServer(std::move(session)));
}

FuseServer::FuseServer(std::unique_ptr<FuseSession> session) : session_(std::move(session)) {}
FuseServer::~FuseServer() = default;

Task<void> FuseServer::Serve() {
  return session_->Serve();
}
Task<void> FuseServer::Drain() {
  return session_->Drain();
}
Task<Status> FuseServer::Unmount() {
  return session_->Unmount();
}
Task<void> FuseServer::UnmountForced() {
  return session_->UnmountForced();
}
Task<void> FuseServer::NotifyVolumeChanged(VolumeId volume) {
  return session_->NotifyVolumeChanged(volume);
}
Task<Status> FuseServer::DeleteVolume(std::string name) {
  return session_->DeleteVolume(std::move(name));
}
bool FuseServer::IsOpen(VolumeId volume) const {
  return session_->IsOpen(volume);
}
const std::string& FuseServer::mountpoint() const {
  return session_->mountpoint();
}
dev_t FuseServer::device() const {
  return session_->device();
}

}  // namespace eplog
