// Processes of `etcdctl lock`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// Without a command, etcdctl holds the lock until a signal. With one, it holds it while a shell runs the lines that are
// written to a pipe.
type etcdctl struct {
	client     *etcdClient
	name       string
	hasCommand bool
	process    *exec.Cmd
	pipe       string
	input      *os.File
}

// The system kills what it starts when its parent dies, so that a driver's death is that of etcdctl and of its command.
var mortal = []string{"setpriv", "--pdeathsig", "KILL"}

func (lock *etcdctl) wait(ctx context.Context) error {
	args := append(mortal[1:len(mortal):len(mortal)], "etcdctl", "--endpoints", lock.client.Endpoints()[0])
	args = append(args, "lock", "--ttl", strconv.Itoa(lock.client.ttl), lock.name)
	if lock.hasCommand {
		lock.pipe = fmt.Sprintf("pipe-%d-%p", os.Getpid(), lock)
		if err := syscall.Mkfifo(lock.pipe, 0o600); err != nil {
			return err
		}
		args = append(append(args, "--"), mortal...)
		args = append(args, "sh", "-c", "echo held; . ./"+lock.pipe)
	}
	var stderr bytes.Buffer
	process := exec.Command(mortal[0], args...)
	process.Stderr = &stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	lock.process = process
	held := make(chan error, 1)
	go func() {
		// Without a command, etcdctl prints the name of its key.
		_, err := bufio.NewReader(output).ReadString('\n')
		held <- err
	}()
	select {
	case err := <-held:
		if err != nil {
			return fmt.Errorf("etcdctl: %v: %s", lock.end(), stderr.String())
		}
		return nil
	case <-ctx.Done():
		process.Process.Signal(syscall.SIGTERM)
		lock.end()
		return ctx.Err()
	}
}

// Waits until the process has ended.
func (lock *etcdctl) end() error {
	err := lock.process.Wait()
	if lock.hasCommand {
		os.Remove(lock.pipe)
	}
	return err
}

// Opens the pipe. It is not open before its first use: if the driver died, its end would end the command.
func (lock *etcdctl) write(line string) error {
	if lock.input == nil {
		input, err := os.OpenFile(lock.pipe, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		lock.input = input
	}
	_, err := lock.input.WriteString(line)
	return err
}

func (lock *etcdctl) release() error {
	if lock.hasCommand {
		if err := lock.write("\n"); err != nil {
			return err
		}
		lock.input.Close()
		lock.input = nil
	} else {
		lock.process.Process.Signal(syscall.SIGTERM)
	}
	return lock.end()
}

// With a command, the command increments.
func (lock *etcdctl) raise(counter string) error {
	if lock.hasCommand {
		return lock.write(fmt.Sprintf("before=$(cat '%s'); echo $((before + 1)) >'%s'\n", counter, counter))
	}
	return raiseIn(counter)
}
